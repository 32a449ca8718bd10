"""Containers of failed starts: ended by the sweep where no attempt could, and nobody else's."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import pytest
from temporalio.client import Client

from activities.attempt import Actuator, Attempt
from adapters.archive_store import Fence, unfenced
from adapters.docker.runtime import DockerRuntime
from adapters.memory.runtime import MemoryRuntime
from adapters.postgres.attention import Attention
from adapters.runtime import Runtime
from coordinator.observer import Observer
from domain.errors import Unreachable
from domain.model import DesiredState, ErrorReason, Operation, OperationId, Phase, WorkspaceId
from domain.observation import ContainerState, Presence
from tests.embedded.up import until
from tests.integration.system import System, system
from tests.resources import resources
from workflows.messages import StepKind


class Interrupted(MemoryRuntime):
    """Something happens between the look at the rows and the engine's turn."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], Awaitable[object]] | None = None

    async def stop(self, workspace_id: WorkspaceId, fence: Fence = unfenced) -> None:
        if self.meanwhile:
            await self.meanwhile()
        await super().stop(workspace_id, fence)


@pytest.fixture
def runtime() -> Interrupted:
    return Interrupted()


@pytest.fixture
async def unswept(temporal_client: Client, database_url: str, runtime: Interrupted) -> AsyncIterator[System]:
    """Nobody sweeps but the test."""
    async with system(temporal_client, database_url, runtime, "image", coordinator=False) as running:
        yield running


async def _begun(running: System, desired: DesiredState, workspace: WorkspaceId) -> OperationId:
    """The operation that leads there is claimed, and its worker is lost with it."""
    await running.desired.set(workspace, desired)
    step = await running.parts.operator.reconciler.step(workspace)
    assert step.kind is StepKind.RUN
    return step.op_id


async def _failed_start(running: System, reason: ErrorReason = ErrorReason.TIMEOUT) -> WorkspaceId:
    """As by the workflow, when its worker was lost too often: the container had been started by then."""
    workspace = await running.create(DesiredState.STANDBY)
    await running.until_phase(workspace, Phase.STANDBY)
    op_id = await _begun(running, DesiredState.RUNNING, workspace)
    await running.runtime.start(workspace, running.image, op_id)
    assert await running.store.fail(workspace, op_id, reason, "its worker was lost")
    return workspace


async def _sweep(running: System, node: str = "local") -> None:
    assert await Observer(node, Attention(running.parts.database), running.runtime, running.waker).sweep() == []


async def _container(running: System, workspace: WorkspaceId) -> ContainerState:
    return (await running.runtime.observe(workspace, probe=False)).container


async def test_what_a_lost_worker_started_is_ended(unswept: System) -> None:
    """Its start failed for good while nobody could reach its engine. The home stays, and so does ERROR."""
    workspace = await _failed_start(unswept)
    await _sweep(unswept)
    seen = await unswept.runtime.observe(workspace, probe=False)
    assert (seen.container, seen.volume) == (ContainerState.ABSENT, Presence.PRESENT)
    row = await unswept.row(workspace)
    assert (row.phase, row.error_reason) == (Phase.ERROR, ErrorReason.TIMEOUT)
    await unswept.recover(workspace)
    await unswept.until_phase(workspace, Phase.RUNNING)


@pytest.mark.docker
async def test_what_a_lost_worker_started_is_ended_on_a_real_engine(
    temporal_client: Client, database_url: str, docker_runtime: DockerRuntime, test_image: str
) -> None:
    """The same with what an engine's lists say."""
    async with system(temporal_client, database_url, docker_runtime, test_image, coordinator=False) as running:
        workspace = await _failed_start(running)
        assert await _container(running, workspace) is ContainerState.READY
        await _sweep(running)
        seen = await docker_runtime.observe(workspace, probe=False)
        assert (seen.container, seen.volume) == (ContainerState.ABSENT, Presence.PRESENT)


async def test_a_container_does_not_survive_an_outage_in_error(temporal_client: Client, database_url: str) -> None:
    """The engine is cut off when the last attempt fails, so that this can end nothing: the node's own sweep does."""
    engine = MemoryRuntime()

    async def start(attempt: Attempt) -> None:
        await engine.start(attempt.workspace.id, attempt.workspace.image_ref, attempt.op_id)
        # Not before: then there would be nothing left to be cut off from.
        engine.unreachable = attempt.number == 3
        raise Unreachable("cut off")

    def actuators(used: Runtime) -> Mapping[Operation, Actuator]:
        return {**resources(used).by_operation(), Operation.STARTING: start}

    async with system(temporal_client, database_url, engine, "image", actuators=actuators) as running:
        workspace = await running.create()
        row = await running.until_phase(workspace, Phase.ERROR)
        assert row.error_reason is ErrorReason.UNREACHABLE
        assert workspace in engine._containers
        engine.unreachable = False
        await until(lambda: workspace not in engine._containers)
        assert (await running.row(workspace)).phase is Phase.ERROR


@pytest.mark.parametrize("runs_again", [False, True])
async def test_who_is_recovered_meanwhile_keeps_the_container(
    unswept: System, runtime: Interrupted, *, runs_again: bool
) -> None:
    """Right before the engine is asked: the row is read once more."""
    workspace = await _failed_start(unswept)

    async def recover() -> None:
        await unswept.desired.recover(workspace)
        if runs_again:
            await unswept.parts.operator.reconciler.step(workspace)

    runtime.meanwhile = recover
    await _sweep(unswept)
    assert await _container(unswept, workspace) is ContainerState.READY
    row = await unswept.row(workspace)
    assert (row.phase, row.error_reason) == (Phase.RUNNING if runs_again else Phase.ERROR, None)


@pytest.mark.parametrize("reason", [ErrorReason.DATA_LOST, ErrorReason.CONTAINER_WITHOUT_VOLUME])
async def test_the_last_to_hold_a_home_is_left(unswept: System, reason: ErrorReason) -> None:
    """What is in such a container may be all that there is: a person decides."""
    workspace = await _failed_start(unswept, reason)
    await _sweep(unswept)
    assert await _container(unswept, workspace) is ContainerState.READY


async def test_a_loss_that_no_row_tells_of_yet_is_heeded(unswept: System, runtime: Interrupted) -> None:
    """Its volume went after the start had failed: the row has another reason until somebody has looked."""
    workspace = await _failed_start(unswept)
    runtime.volumes.pop(workspace)
    observer = Observer("local", Attention(unswept.parts.database), runtime, unswept.waker)
    assert await observer.sweep() == [workspace]
    assert await _container(unswept, workspace) is ContainerState.READY


async def test_who_could_not_be_stopped_waits_for_a_person(unswept: System) -> None:
    """Somebody was in there; and whoever leaves a node, or is put to sleep, may have unsaved work."""
    workspace = await unswept.create()
    await unswept.until_phase(workspace, Phase.RUNNING)
    op_id = await _begun(unswept, DesiredState.STANDBY, workspace)
    assert await unswept.store.fail(workspace, op_id, ErrorReason.TIMEOUT, "its worker was lost")
    await _sweep(unswept)
    assert await _container(unswept, workspace) is ContainerState.READY


async def test_who_was_used_after_a_failed_start_is_left(unswept: System, runtime: Interrupted) -> None:
    """Recovered, it was RUNNING with the container that was there, so a failed start is its last operation. Then its
    node was lost: what was open in it is still there when the node returns."""
    workspace = await _failed_start(unswept)
    await unswept.recover(workspace)
    await unswept.until_phase(workspace, Phase.RUNNING)
    await unswept.parts.database.execute(
        "INSERT INTO nodes (name, engine_id, lost_at) VALUES ('local', 'e', now())"
        " ON CONFLICT (name) DO UPDATE SET lost_at = now()"
    )
    runtime.unreachable = True
    await unswept.wake(workspace)
    row = await unswept.until_phase(workspace, Phase.ERROR)
    assert row.error_reason is ErrorReason.UNREACHABLE
    runtime.unreachable = False
    await _sweep(unswept)
    assert await _container(unswept, workspace) is ContainerState.READY


async def test_a_node_ends_its_own_only(unswept: System) -> None:
    """What an engine holds of a workspace of another node is no container of the start that failed."""
    workspace = await _failed_start(unswept)
    await _sweep(unswept, node="another")
    assert await _container(unswept, workspace) is ContainerState.READY


async def test_one_that_can_not_be_ended_keeps_nobody_else(unswept: System, runtime: Interrupted) -> None:
    """Nor the sweep: the next one tries again."""
    stuck, other = [await _failed_start(unswept) for _ in range(2)]
    refused = 0

    async def refuse() -> None:
        nonlocal refused
        refused += 1
        if refused == 1:
            raise Unreachable("not now")

    runtime.meanwhile = refuse
    await _sweep(unswept)
    left = [await _container(unswept, one) for one in (stuck, other)]
    assert sorted(left) == [ContainerState.ABSENT, ContainerState.READY]
    await _sweep(unswept)
    assert {await _container(unswept, one) for one in (stuck, other)} == {ContainerState.ABSENT}
