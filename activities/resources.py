"""PROVISIONING, STARTING, STOPPING, DELETING: what is done to containers and volumes (SPEC 5)."""

from collections.abc import Mapping
from dataclasses import dataclass

from activities.attempt import Actuator, Attempt
from adapters.runtime import Runtime
from domain.model import Operation


@dataclass(frozen=True, slots=True)
class ResourceActuators:
    runtime: Runtime

    def by_operation(self) -> Mapping[Operation, Actuator]:
        return {
            Operation.PROVISIONING: self.provision,
            Operation.STARTING: self.start,
            Operation.STOPPING: self.stop,
            Operation.DELETING: self.delete,
        }

    async def provision(self, attempt: Attempt) -> None:
        await self.runtime.create_volume(attempt.workspace.id, attempt.op_id)

    async def start(self, attempt: Attempt) -> None:
        await self.runtime.start(attempt.workspace.id, attempt.workspace.image_ref, attempt.op_id)

    async def stop(self, attempt: Attempt) -> None:
        await self.runtime.stop(attempt.workspace.id)

    async def delete(self, attempt: Attempt) -> None:
        """Container, then volume: never the reverse."""
        await self.runtime.stop(attempt.workspace.id)
        await self.runtime.remove_volume(attempt.workspace.id)
