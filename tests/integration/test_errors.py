"""Failures of operations: counted while retried, final in one step, left only by a person (SPEC 6)."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from docker import APIClient
from temporalio.client import Client

from activities.attempt import Actuator, Attempt
from adapters.docker.runtime import DockerRuntime
from adapters.memory.runtime import MemoryRuntime
from adapters.runtime import Runtime
from domain.errors import ActionFailed
from domain.model import DesiredState, ErrorReason, Operation, Phase
from domain.observation import ContainerState, Presence
from settings import Settings
from tests.adapters.docker_registry import registry
from tests.embedded import image
from tests.harness.stored import stored_by_temporal
from tests.integration.system import System, system
from tests.resources import resources

Actuators = Callable[[Runtime], Mapping[Operation, Actuator]]


@contextmanager
def engine(docker_host: str) -> Iterator[APIClient]:
    """As a person sees it."""
    with closing(APIClient(docker_host, timeout=60)) as api:
        yield api


def starting(start: Actuator) -> Actuators:
    """The real actuators, but for STARTING."""
    return lambda runtime: {**resources(runtime).by_operation(), Operation.STARTING: start}


def noting(seen: list[int], start: Actuator) -> Actuator:
    """The same, and on the way what error_count the row shows as each attempt begins: a look from outside can miss
    one on a busy machine."""

    async def note(attempt: Attempt) -> None:
        seen.append(attempt.workspace.error_count)
        await start(attempt)

    return note


async def test_each_failed_attempt_shows_and_the_third_is_an_error(temporal_client: Client, database_url: str) -> None:
    """error_count is seen as 1, 2, 3, then ERROR with the failure's own reason."""
    seen: list[int] = []

    async def start(_: Attempt) -> None:
        raise ActionFailed("the engine said no")

    noted = starting(noting(seen, start))
    async with system(temporal_client, database_url, MemoryRuntime(), "image", actuators=noted) as running:
        workspace = await running.create()
        row = await running.until_phase(workspace, Phase.ERROR)
        assert seen == [0, 1, 2]
        assert (row.error_reason, row.error_count, row.operation) == (ErrorReason.ACTION_FAILED, 3, Operation.NONE)
        (logged,) = await running.parts.database.fetch(
            "SELECT outcome, attempts, error_message FROM operations WHERE operation = 'STARTING'"
        )
        assert tuple(logged) == ("FAILED", 3, "the engine said no")


@pytest.mark.docker
async def test_an_image_that_exits_is_started_thrice(
    temporal_client: Client, database_url: str, docker_runtime: DockerRuntime, docker_host: str, installation: str
) -> None:
    """The same on a real engine: its container is gone before its port answers, each time."""
    seen: list[int] = []
    noted = starting(noting(seen, resources(docker_runtime).start))
    name = image.build(docker_host, f"{installation}-exits", ("/bin/false",))
    try:
        async with system(temporal_client, database_url, docker_runtime, name, actuators=noted) as running:
            workspace = await running.create()
            row = await running.until_phase(workspace, Phase.ERROR, seconds=60)
    finally:
        with engine(docker_host) as api:
            api.remove_image(name, force=True)
    assert seen == [0, 1, 2]
    assert (row.error_reason, row.error_count, row.operation) == (ErrorReason.ACTION_FAILED, 3, Operation.NONE)


@pytest.mark.docker
async def test_an_image_that_is_not_there_and_then_is(
    on_docker: System, docker_host: str, test_image: str, tmp_path: Path
) -> None:
    """A real registry says that there is none: ERROR at once. It is pushed, and recover is all it takes."""
    with registry(tmp_path) as address, engine(docker_host) as api:
        name = f"{address}/ide"
        workspace = await on_docker.create(image=f"{name}:1")
        row = await on_docker.until_phase(workspace, Phase.ERROR)
        assert (row.error_reason, row.error_count) == (ErrorReason.IMAGE_PULL_FAILED, 1)
        api.tag(test_image, name, "1")
        assert "error" not in await asyncio.to_thread(api.push, name, "1")
        # Of this engine's own, nothing is left: it has to be pulled.
        api.remove_image(f"{name}:1")
        await on_docker.recover(workspace)
        row = await on_docker.until_phase(workspace, Phase.RUNNING)
        assert (row.error_reason, row.error_count) == (None, 0)
        await on_docker.delete(workspace)
        await on_docker.until_phase(workspace, Phase.DELETED)
        api.remove_image(f"{name}:1", force=True)


@pytest.mark.parametrize("known", [True, False])
async def test_what_a_workspace_said_is_in_the_operation_log_only(
    temporal_client: Client, database_url: str, *, known: bool
) -> None:
    """Its owner reads it there; whoever may look at Temporal does not, without any encryption."""
    words = "the token is 12345"

    async def start(_: Attempt) -> None:
        raise (ActionFailed(f"it said: {words}", words) if known else ValueError(words)) from OSError(words)

    async with system(temporal_client, database_url, MemoryRuntime(), "image", actuators=starting(start)) as running:
        await running.until_phase(await running.create(), Phase.ERROR)
        logged = await running.parts.database.fetchval(
            "SELECT error_message FROM operations WHERE operation = 'STARTING'"
        )
        assert logged == (f"it said: {words}" if known else f"ValueError: {words}")
        told = "\n".join([text async for text in stored_by_temporal(temporal_client)])
    assert ("it said: …" if known else "ValueError") in told
    assert words not in told


async def test_whatever_a_workspace_says_can_be_kept_and_shown(temporal_client: Client, database_url: str) -> None:
    """Zero bytes, which no database takes, and commands to the terminal of whoever reads it: the failure is counted
    like every other."""

    async def start(_: Attempt) -> None:
        raise ActionFailed("it said: boom\0\x1b[2J\n\x9b1mbang", "boom\0\x1b[2J\n\x9b1mbang")

    async with system(temporal_client, database_url, MemoryRuntime(), "image", actuators=starting(start)) as running:
        row = await running.until_phase(await running.create(), Phase.ERROR)
        assert (row.error_reason, row.error_count) == (ErrorReason.ACTION_FAILED, 3)
        logged = await running.parts.database.fetchval(
            "SELECT error_message FROM operations WHERE operation = 'STARTING'"
        )
        assert logged == "it said: boom\ufffd\ufffd[2J\n\ufffd1mbang"


async def test_how_often_it_is_tried_is_a_setting(temporal_client: Client, database_url: str) -> None:
    """With RECONCILER_MAX_RETRIES=1 the first failure is the last, and error_count says so."""

    async def start(_: Attempt) -> None:
        raise ActionFailed("the engine said no")

    settings = Settings(reconciler_max_retries=1)
    async with system(
        temporal_client, database_url, MemoryRuntime(), "image", actuators=starting(start), settings=settings
    ) as running:
        row = await running.until_phase(await running.create(), Phase.ERROR)
        assert (row.error_reason, row.error_count) == (ErrorReason.ACTION_FAILED, 1)


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
        await running.wake(workspace)
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


async def test_what_a_failed_start_left_running_is_ended(temporal_client: Client, database_url: str) -> None:
    """It runs and never answers: in ERROR it would count for no limit, and nobody would put it to sleep."""
    runtime = MemoryRuntime()

    async def start(attempt: Attempt) -> None:
        await runtime.start(attempt.workspace.id, attempt.workspace.image_ref, attempt.op_id)
        await asyncio.Event().wait()

    settings = Settings(reconciler_starting_timeout=1)
    async with system(
        temporal_client, database_url, runtime, "image", actuators=starting(start), settings=settings
    ) as running:
        workspace = await running.create()
        row = await running.until_phase(workspace, Phase.ERROR)
        assert row.error_reason is ErrorReason.TIMEOUT
        seen = await runtime.observe(workspace, probe=False)
        assert (seen.container, seen.volume) == (ContainerState.ABSENT, Presence.PRESENT)


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
        return {**resources(runtime).by_operation(), operation: refuse}

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
