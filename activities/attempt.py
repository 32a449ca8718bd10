"""One try at an operation."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from activities.pulse import Pulse
from domain.model import OperationId, Workspace


class Superseded(Exception):
    """A later attempt has taken over: this one must touch nothing any more."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """Its number is the fence: a later attempt supersedes it."""

    workspace: Workspace
    op_id: OperationId
    number: int
    pulse: Pulse = field(default_factory=Pulse, compare=False)


Actuator = Callable[[Attempt], Awaitable[None]]
