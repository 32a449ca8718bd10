"""What is done to containers and volumes, where no attempt is ever late."""

from collections.abc import Collection

from activities.attempt import Attempt
from activities.resources import ResourceActuators
from adapters.runtime import Runtime
from domain.model import WorkspaceId


def resources(runtime: Runtime) -> ResourceActuators:
    return ResourceActuators(runtime, _lets_pass, _none)


async def _lets_pass(_: Attempt) -> None:
    """A fence."""


async def _none(_: WorkspaceId, _node: str, _among: Collection[int]) -> set[int]:
    """Ports of others."""
    return set()
