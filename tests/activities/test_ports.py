"""A workspace is not started where a row still says that another one is: whoever has that one open would be in it."""

from temporalio.client import Client

from activities.attempt import Attempt
from activities.resources import ResourceActuators
from adapters.archive_store import Fence, unfenced
from adapters.memory.runtime import ENDPOINT, MemoryRuntime
from adapters.postgres.attention import Attention
from adapters.postgres.workspaces import WorkspaceStore
from adapters.runtime import PortsTaken, none_taken
from domain.model import DesiredState, OperationId, Phase, WorkspaceId
from domain.observation import ContainerState, Presence, Resources
from tests.integration.conftest import in_memory
from tests.integration.system import System, system

__all__ = ["in_memory"]

PORT = int(ENDPOINT.rpartition(":")[2])


class Told(MemoryRuntime):
    taken: PortsTaken = staticmethod(none_taken)

    async def start(
        self,
        workspace_id: WorkspaceId,
        image_ref: str,
        op_id: OperationId,
        fence: Fence = unfenced,
        taken: PortsTaken = none_taken,
    ) -> None:
        self.taken = taken
        await super().start(workspace_id, image_ref, op_id, fence, taken)


async def test_ports_of_others_are_passed_by(temporal_client: Client, database_url: str) -> None:
    runtime = Told()
    async with system(temporal_client, database_url, runtime, "image") as running:
        here, other = await running.create(), await running.create()
        for workspace in (here, other):
            await running.until_phase(workspace, Phase.RUNNING)
        store = WorkspaceStore(running.parts.database)
        row = await store.load(here)
        assert row
        assert row.node
        some = (PORT - 1, PORT, PORT % 1000)
        assert await store.ports_of_others(here, row.node, some) == {PORT}
        assert await store.ports_of_others(here, row.node, some[:1]) == set()
        assert await store.ports_of_others(here, "elsewhere", some) == set()
        attempt = Attempt(row, OperationId("op"), 1)
        await ResourceActuators(runtime, _lets_pass, store.ports_of_others).start(attempt)
        assert await runtime.taken(some) == {PORT}
        await running.want(other, DesiredState.STANDBY)
        await running.until_phase(other, Phase.STANDBY)
        assert await store.ports_of_others(here, row.node, some) == set()


async def test_who_answers_elsewhere_has_drifted(in_memory: System) -> None:
    """A container that was started again by hand has another port: the row's may be anybody's."""
    workspace = await in_memory.create()
    row = await in_memory.until_phase(workspace, Phase.RUNNING)
    assert row.node
    attention = Attention(in_memory.parts.database)
    seen = {workspace: Resources(ContainerState.READY, Presence.PRESENT, row.endpoint)}
    assert await attention.drifted(row.node, seen) == []
    seen = {workspace: Resources(ContainerState.READY, Presence.PRESENT, "127.0.0.1:4")}
    assert await attention.drifted(row.node, seen) == [workspace]


async def _lets_pass(_: Attempt) -> None:
    """A fence."""
