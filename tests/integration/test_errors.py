"""Failures of operations: counted while retried, final in one step, left only by a person (SPEC 6)."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
from temporalio.client import Client

from activities.attempt import Actuator, Attempt
from activities.resources import ResourceActuators
from adapters.memory.runtime import MemoryRuntime
from adapters.runtime import Runtime
from domain.errors import ActionFailed
from domain.model import DesiredState, ErrorReason, Operation, Phase, Workspace
from settings import Settings
from tests.integration.system import System, system

Actuators = Callable[[Runtime], Mapping[Operation, Actuator]]


def starting(start: Actuator) -> Actuators:
    """The real actuators, but for STARTING."""
    return lambda runtime: {**ResourceActuators(runtime).by_operation(), Operation.STARTING: start}


async def test_each_failed_attempt_shows_and_the_third_is_an_error(temporal_client: Client, database_url: str) -> None:
    """error_count is seen as 1, 2, 3, then ERROR with the failure's own reason."""
    seen: list[int] = []

    async def start(_: Attempt) -> None:
        raise ActionFailed("the engine said no")

    settings = Settings(reconciler_retry_backoff=0.3)
    async with system(
        temporal_client, database_url, MemoryRuntime(), "image", actuators=starting(start), settings=settings
    ) as running:
        workspace = await running.create()

        def note(ws: Workspace) -> bool:
            if ws.operation is Operation.STARTING and (not seen or seen[-1] != ws.error_count):
                seen.append(ws.error_count)
            return ws.phase is Phase.ERROR

        row = await running.until(workspace, note)
        assert seen[:3] == [0, 1, 2]
        assert (row.error_reason, row.error_count, row.operation) == (ErrorReason.ACTION_FAILED, 3, Operation.NONE)
        (logged,) = await running.parts.database.fetch(
            "SELECT outcome, attempts, error_message FROM operations WHERE operation = 'STARTING'"
        )
        assert tuple(logged) == ("FAILED", 3, "the engine said no")


async def test_recover_goes_on_towards_the_desired_state(temporal_client: Client, database_url: str) -> None:
    """What a person mended works after recover; nothing leaves ERROR before."""
    broken = True

    async def start(attempt: Attempt) -> None:
        if broken:
            raise ActionFailed("not yet")
        await runtime.start(attempt.workspace.id, attempt.workspace.image_ref, attempt.op_id)

    runtime = MemoryRuntime()
    async with system(temporal_client, database_url, runtime, "image", actuators=starting(start)) as running:
        workspace = await running.create()
        await running.until_phase(workspace, Phase.ERROR)
        await running.waker.wake(workspace)
        await asyncio.sleep(1.5)
        assert (await running.row(workspace)).phase is Phase.ERROR
        broken = False
        await running.recover(workspace)
        row = await running.until_phase(workspace, Phase.RUNNING)
        assert (row.error_reason, row.error_count) == (None, 0)


async def test_an_image_that_cannot_be_had_is_an_error_at_once(in_memory: System) -> None:
    assert isinstance(in_memory.runtime, MemoryRuntime)
    in_memory.runtime.missing_images.add("no-such-image")
    workspace = await in_memory.create(image="no-such-image")
    row = await in_memory.until_phase(workspace, Phase.ERROR)
    assert (row.error_reason, row.error_count) == (ErrorReason.IMAGE_PULL_FAILED, 1)
    in_memory.runtime.missing_images.clear()
    await in_memory.recover(workspace)
    await in_memory.until_phase(workspace, Phase.RUNNING)


async def test_a_failure_of_no_known_class_is_retry_exceeded(temporal_client: Client, database_url: str) -> None:
    async def start(_: Attempt) -> None:
        raise ZeroDivisionError("surprise")

    async with system(temporal_client, database_url, MemoryRuntime(), "image", actuators=starting(start)) as running:
        workspace = await running.create()
        row = await running.until_phase(workspace, Phase.ERROR)
        assert (row.error_reason, row.error_count) == (ErrorReason.RETRY_EXCEEDED, 3)


async def test_an_operation_that_hangs_is_a_timeout(temporal_client: Client, database_url: str) -> None:
    """The whole operation took longer than its timeout: ERROR at once, although the worker lives."""

    async def start(_: Attempt) -> None:
        await asyncio.Event().wait()

    settings = Settings(reconciler_starting_timeout=1)
    async with system(
        temporal_client, database_url, MemoryRuntime(), "image", actuators=starting(start), settings=settings
    ) as running:
        workspace = await running.create()
        row = await running.until_phase(workspace, Phase.ERROR)
        assert row.error_reason is ErrorReason.TIMEOUT


async def test_delete_works_in_error(in_memory: System) -> None:
    assert isinstance(in_memory.runtime, MemoryRuntime)
    in_memory.runtime.missing_images.add("no-such-image")
    workspace = await in_memory.create(image="no-such-image")
    await in_memory.until_phase(workspace, Phase.ERROR)
    await in_memory.delete(workspace)
    row = await in_memory.until_phase(workspace, Phase.DELETED)
    assert row.error_reason is None
    assert (await in_memory.runtime.observe(workspace, probe=False)).gone


async def test_an_engine_that_does_not_answer_is_waited_for(in_memory: System) -> None:
    """Unknown is not absent: nothing is started, nothing fails, and it goes on when the engine is back."""
    assert isinstance(in_memory.runtime, MemoryRuntime)
    workspace = await in_memory.create(DesiredState.STANDBY)
    await in_memory.until_phase(workspace, Phase.STANDBY)
    in_memory.runtime.unreachable = True
    await in_memory.want(workspace, DesiredState.RUNNING)
    await asyncio.sleep(2.5)
    row = await in_memory.row(workspace)
    assert (row.phase, row.operation, row.error_count) == (Phase.STANDBY, Operation.NONE, 0)
    in_memory.runtime.unreachable = False
    await in_memory.until_phase(workspace, Phase.RUNNING)


@pytest.mark.parametrize("operation", [Operation.STOPPING, Operation.DELETING])
async def test_a_failed_way_down_waits_for_a_person(
    temporal_client: Client, database_url: str, operation: Operation
) -> None:
    """Retries are bounded on the way down too, also when a deletion fails."""
    calls = 0

    async def refuse(_: Attempt) -> None:
        nonlocal calls
        calls += 1
        raise ActionFailed("busy")

    def actuators(runtime: Runtime) -> Mapping[Operation, Actuator]:
        return {**ResourceActuators(runtime).by_operation(), operation: refuse}

    async with system(temporal_client, database_url, MemoryRuntime(), "image", actuators=actuators) as running:
        workspace = await running.create()
        await running.until_phase(workspace, Phase.RUNNING)
        if operation is Operation.STOPPING:
            await running.want(workspace, DesiredState.STANDBY)
        else:
            await running.delete(workspace)
        await running.until_phase(workspace, Phase.ERROR)
        await asyncio.sleep(2.5)
        assert calls == 3
