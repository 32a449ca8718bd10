"""PROVISIONING, STARTING, STOPPING, DELETING: what is done to containers and volumes (SPEC 5)."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial

from activities.attempt import Actuator, Attempt
from adapters.runtime import Runtime, none_taken
from domain.model import Operation, WorkspaceId


@dataclass(frozen=True, slots=True)
class ResourceActuators:
    runtime: Runtime
    fence: Callable[[Attempt], Awaitable[None]]
    """Raises when a later attempt has taken over, or the operation is over."""
    taken: Callable[[WorkspaceId, str, Collection[int]], Awaitable[Collection[int]]]
    """Of these ports of a node, those at which somebody may still look for another workspace than this one."""

    def by_operation(self) -> Mapping[Operation, Actuator]:
        return {
            Operation.PROVISIONING: self.provision,
            Operation.STARTING: self.start,
            Operation.STOPPING: self.stop,
            Operation.DELETING: self.delete,
        }

    async def provision(self, attempt: Attempt) -> None:
        await self.runtime.create_volume(attempt.workspace.id, attempt.op_id, partial(self.fence, attempt))

    async def start(self, attempt: Attempt) -> None:
        ws = attempt.workspace
        taken = partial(self.taken, ws.id, ws.node) if ws.node else none_taken
        await self.runtime.start(ws.id, ws.image_ref, attempt.op_id, partial(self.fence, attempt), taken)

    async def stop(self, attempt: Attempt) -> None:
        await self.runtime.stop(attempt.workspace.id, partial(self.fence, attempt))

    async def delete(self, attempt: Attempt) -> None:
        """Container, then volume: never the reverse. Without a fence: nothing comes after it that could be harmed."""
        await self.runtime.stop(attempt.workspace.id)
        await self.runtime.remove_volume(attempt.workspace.id)
