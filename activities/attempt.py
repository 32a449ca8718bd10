"""One try at an operation."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from domain.model import OperationId, Workspace


class Superseded(Exception):
    """A later attempt has taken over: this one must touch nothing any more."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """Its number is the fence: a later attempt supersedes it."""

    workspace: Workspace
    op_id: OperationId
    number: int


Actuator = Callable[[Attempt], Awaitable[None]]
