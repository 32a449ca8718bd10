"""What happens behind its back is noticed and mended, or said (SPEC 3.1, PROMISE 24)."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from typing import Any

import docker
import pytest
from temporalio.client import Client, WorkflowExecutionStatus

from adapters.docker.runtime import DockerRuntime
from adapters.memory.runtime import MemoryRuntime
from adapters.postgres.attention import Attention
from coordinator.census import Census
from coordinator.observer import Observer
from domain.model import ConditionName, DesiredState, ErrorReason, Operation, OperationId, Phase, WorkspaceId
from domain.naming import container_name, volume_name, workflow_id
from settings import Settings
from tests.embedded.up import until
from tests.integration.system import System, system


@pytest.fixture
def engine(docker_host: str) -> Iterator[docker.DockerClient]:
    with closing(docker.DockerClient(base_url=docker_host)) as client:
        yield client


@pytest.mark.docker
@pytest.mark.parametrize("how", ["remove", "kill"])
async def test_a_container_that_goes_is_noticed_within_two_seconds_and_started_again(
    temporal_client: Client,
    database_url: str,
    docker_runtime: DockerRuntime,
    test_image: str,
    engine: docker.DockerClient,
    how: str,
) -> None:
    """PROMISE 24: by the event stream; the sweep is too slow here to be the one."""
    settings = Settings(coordinator_idle_interval=3600, coordinator_retry_interval=0.2)
    async with system(temporal_client, database_url, docker_runtime, test_image, settings=settings) as running:
        workspace = await running.create()
        await running.until_phase(workspace, Phase.RUNNING)
        # The observer stands for election by itself.
        await until(lambda: any(watch._subscribed for watch in docker_runtime._watches))
        before = engine.containers.get(container_name(workspace))
        # Not in the loop: who is to notice runs in it.
        await asyncio.to_thread(lambda: before.remove(force=True) if how == "remove" else before.kill())
        await running.until(workspace, lambda ws: ws.operation is Operation.STARTING)
        assert await _noticed(running, workspace) - _gone(engine, before.id) < timedelta(seconds=2)
        await running.until_phase(workspace, Phase.RUNNING)
        assert engine.containers.get(container_name(workspace)).id != before.id


def _gone(engine: docker.DockerClient, container: str | None) -> datetime:
    """By the engine's own account: to be asked, and to answer, takes it a moment on a busy machine."""
    filters = {"container": container, "event": "die"}
    # docker-py would leave out the fraction of its second.
    now: Any = f"{time.time():.9f}"
    (died,) = engine.events(since=1, until=now, filters=filters, decode=True)
    return datetime.fromtimestamp(died["timeNano"] / 1e9, UTC)


async def _noticed(running: System, workspace: WorkspaceId) -> datetime:
    """When it was begun to start it again: on the same machine, so by the same clock."""
    at: datetime = await running.parts.database.fetchval(
        "SELECT max(started_at) FROM operations WHERE workspace_id = $1 AND operation = 'STARTING'", workspace
    )
    return at


async def test_without_events_the_sweep_notices(temporal_client: Client, database_url: str) -> None:
    """PROMISE 24: within the idle interval, for all workspaces at once."""
    runtime = MemoryRuntime()
    settings = Settings(coordinator_idle_interval=1, coordinator_retry_interval=0.2)
    async with system(temporal_client, database_url, runtime, "image", settings=settings) as running:
        workspaces = [await running.create() for _ in range(3)]
        for workspace in workspaces:
            await running.until_phase(workspace, Phase.RUNNING)
        for workspace in workspaces:
            runtime._containers.pop(workspace)  # no event
        # What is promised; nobody else looks before an hour is over.
        deadline = time.monotonic() + 15
        while len(runtime._containers) < 3:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)


@pytest.mark.docker
@pytest.mark.parametrize("worst", [False, pytest.param(True, marks=pytest.mark.full)])
async def test_as_it_is_set_the_sweep_notices_within_fifteen_seconds(
    temporal_client: Client,
    database_url: str,
    docker_runtime: DockerRuntime,
    test_image: str,
    engine: docker.DockerClient,
    monkeypatch: pytest.MonkeyPatch,
    worst: bool,
) -> None:
    """PROMISE 24, without the event stream: on the real engine and with the interval of an installation. At the worst
    moment a sweep has just looked; else it looked when the observer was elected, a few seconds ago."""
    looked, silent = asyncio.Event(), asyncio.Event()
    observe_all = DockerRuntime.observe_all

    async def noted(runtime: DockerRuntime) -> Any:
        seen = await observe_all(runtime)
        looked.set()
        return seen

    @asynccontextmanager
    async def says_nothing(_: DockerRuntime) -> AsyncIterator[AsyncIterator[WorkspaceId]]:
        async def nothing() -> AsyncIterator[WorkspaceId]:
            await silent.wait()
            yield WorkspaceId("")

        yield nothing()

    monkeypatch.setattr(DockerRuntime, "observe_all", noted)
    monkeypatch.setattr(DockerRuntime, "watch", says_nothing)
    settings = Settings(coordinator_retry_interval=0.2)
    async with system(temporal_client, database_url, docker_runtime, test_image, settings=settings) as running:
        workspace = await running.create()
        await running.until_phase(workspace, Phase.RUNNING)
        if worst:
            looked.clear()
        async with asyncio.timeout(30):
            await looked.wait()
        before = engine.containers.get(container_name(workspace))
        await asyncio.to_thread(before.kill)
        await running.until(workspace, lambda ws: ws.operation is Operation.STARTING)
        assert await _noticed(running, workspace) - _gone(engine, before.id) < timedelta(seconds=15)
        await running.until_phase(workspace, Phase.RUNNING)


@pytest.mark.docker
async def test_a_volume_that_vanished_is_data_lost_and_never_an_empty_home(
    on_docker: System, engine: docker.DockerClient
) -> None:
    """PROMISE 24: recover means that a person accepts it."""
    workspace = await on_docker.create(DesiredState.STANDBY)
    await on_docker.until_phase(workspace, Phase.STANDBY)
    engine.volumes.get(volume_name(workspace)).remove()
    row = await on_docker.until_phase(workspace, Phase.ERROR)
    assert row.error_reason is ErrorReason.DATA_LOST
    assert not engine.volumes.list(filters={"name": volume_name(workspace)})
    await on_docker.recover(workspace)
    await on_docker.until_phase(workspace, Phase.STANDBY)


@pytest.mark.parametrize("by", ["event", "sweep"])
async def test_a_volume_that_is_put_back_is_seen_in_error(temporal_client: Client, database_url: str, by: str) -> None:
    """Whoever is asked to accept a loss is told what is there. It stays in ERROR: that is left only by a person. Once
    it was looked at, nobody is woken any more."""
    runtime, idle = MemoryRuntime(), 3600 if by == "event" else 1
    settings = Settings(coordinator_idle_interval=idle, coordinator_retry_interval=0.2)
    async with system(temporal_client, database_url, runtime, "image", settings=settings) as running:
        workspace = await running.create(DesiredState.STANDBY)
        await running.until_phase(workspace, Phase.STANDBY)
        await until(lambda: len(runtime._watches) > 0)
        kept = runtime.volumes[workspace]
        runtime.drop_volume(workspace)
        await running.until_phase(workspace, Phase.ERROR)
        observer = Observer("local", Attention(running.parts.database), runtime, running.waker)
        assert await observer.sweep() == []
        runtime.volumes[workspace] = kept
        if by == "event":
            runtime._changed(workspace)
        back = await running.until(workspace, lambda ws: ws.condition(ConditionName.VOLUME_READY))
        assert (back.phase, back.error_reason) == (Phase.ERROR, ErrorReason.DATA_LOST)
        assert await observer.sweep() == []
        runtime.volumes.pop(workspace)
        if by == "event":
            runtime._changed(workspace)
        gone = await running.until(workspace, lambda ws: not ws.condition(ConditionName.VOLUME_READY))
        assert (gone.phase, gone.error_reason) == (Phase.ERROR, ErrorReason.DATA_LOST)


async def test_nobody_is_woken_again_and_again_in_error(temporal_client: Client, database_url: str) -> None:
    """On a node that takes no home nobody looks for one: what is put back there would be news for ever."""
    runtime = MemoryRuntime()
    async with system(temporal_client, database_url, runtime, "image", coordinator=False) as running:
        workspace = await running.create(DesiredState.STANDBY)
        await running.until_phase(workspace, Phase.STANDBY)
        kept = runtime.volumes.pop(workspace)
        await running.wake(workspace)
        await running.until_phase(workspace, Phase.ERROR)
        runtime.volumes[workspace] = kept
        observer = Observer("local", Attention(running.parts.database), runtime, running.waker)
        await running.parts.database.execute(
            "INSERT INTO nodes (name, engine_id, cordoned_at) VALUES ('local', 'e', now())"
            " ON CONFLICT (name) DO UPDATE SET cordoned_at = now()"
        )
        assert await observer.sweep() == []
        await running.parts.database.execute("UPDATE nodes SET cordoned_at = NULL")
        assert await observer.sweep() == [workspace]


async def test_the_sweep_wakes_only_what_drifted(temporal_client: Client, database_url: str) -> None:
    """Of three that are at rest, the one whose container went; once it is back, none."""
    runtime = MemoryRuntime()
    async with system(temporal_client, database_url, runtime, "image", coordinator=False) as running:
        workspaces = [await running.create() for _ in range(3)]
        asleep = await running.create(DesiredState.STANDBY)
        for workspace in workspaces:
            await running.until_phase(workspace, Phase.RUNNING)
        await running.until_phase(asleep, Phase.STANDBY)
        observer = Observer("local", Attention(running.parts.database), runtime, running.waker)
        assert await observer.sweep() == []
        drifted = workspaces[1]
        runtime._containers.pop(drifted)  # no event
        assert await observer.sweep() == [drifted]
        await until(lambda: drifted in runtime._containers)
        await running.until_phase(drifted, Phase.RUNNING)
        assert await observer.sweep() == []


async def test_a_workflow_that_is_missing_is_started_again(in_memory: System, temporal_client: Client) -> None:
    """Of a workspace at rest, which nobody asks anything of: a count that stays too low leads to it."""
    kept, lost = [await in_memory.create() for _ in range(2)]
    for workspace in (kept, lost):
        await in_memory.until_phase(workspace, Phase.RUNNING)
    ended = temporal_client.get_workflow_handle(workflow_id(lost))
    before = {workspace: await _run_of(temporal_client, workspace) for workspace in (kept, lost)}
    await ended.terminate()
    # The system's own counts once a minute.
    census = Census(Attention(in_memory.parts.database), temporal_client, in_memory.waker, interval=0.2)
    counting = asyncio.create_task(census.run())
    try:
        async with asyncio.timeout(30):
            while (await ended.describe()).status is not WorkflowExecutionStatus.RUNNING:
                await asyncio.sleep(0.05)
    finally:
        counting.cancel()
    assert await _run_of(temporal_client, lost) != before[lost]
    assert await _run_of(temporal_client, kept) == before[kept]
    assert (await in_memory.row(lost)).phase is Phase.RUNNING


async def test_a_workflow_that_is_missing_is_started_when_it_is_needed(
    in_memory: System, temporal_client: Client
) -> None:
    """By the wake itself: long before anybody counts."""
    workspace = await in_memory.create()
    await in_memory.until_phase(workspace, Phase.RUNNING)
    await temporal_client.get_workflow_handle(workflow_id(workspace)).terminate()
    await in_memory.desired.set(workspace, DesiredState.STANDBY)
    await in_memory.until_phase(workspace, Phase.STANDBY)


async def test_a_wake_that_the_api_could_not_send_is_sent_by_the_listener(
    temporal_client: Client, database_url: str
) -> None:
    """The API died between commit and signal: the notification wakes the workflow; the sweep is off."""
    settings = Settings(coordinator_idle_interval=3600, coordinator_retry_interval=0.2)
    async with system(temporal_client, database_url, MemoryRuntime(), "image", settings=settings) as running:
        first = await running.create()
        await running.until_phase(first, Phase.RUNNING)
        await _somebody_listens(running)
        # Else it is the census that finds the new one, after a minute.
        workspace = await running.insert()
        await running.until_phase(workspace, Phase.RUNNING)
        await running.desired.set(workspace, DesiredState.STANDBY)
        await running.until_phase(workspace, Phase.STANDBY)


async def test_a_wake_that_nobody_heard_is_found_by_the_sweep(temporal_client: Client, database_url: str) -> None:
    """No listener was there when it was committed: phase is not what is desired, and the sweep sees that."""
    runtime = MemoryRuntime()
    async with system(temporal_client, database_url, runtime, "image", coordinator=False) as running:
        workspace = await running.insert()
    async with system(temporal_client, database_url, runtime, "image") as running:
        await running.until_phase(workspace, Phase.RUNNING)


async def test_leftovers_of_a_deleted_workspace_are_removed(in_memory: System) -> None:
    """A lost attempt may make a volume after the deletion was complete: the sweep removes it."""
    assert isinstance(in_memory.runtime, MemoryRuntime)
    workspace = await in_memory.create()
    await in_memory.until_phase(workspace, Phase.RUNNING)
    await in_memory.delete(workspace)
    await in_memory.until_phase(workspace, Phase.DELETED)
    await in_memory.runtime.create_volume(workspace, OperationId("lost"))
    deadline = time.monotonic() + 30
    while not (await in_memory.runtime.observe(workspace, probe=False)).gone:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def _somebody_listens(running: System) -> None:
    """The leader stands for election by itself, and its listener connects then; of its channels this is the last."""
    listens = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%logins_changed%'"
    async with asyncio.timeout(30):
        while not await running.parts.database.fetch(listens):
            await asyncio.sleep(0.05)


async def _run_of(client: Client, workspace: WorkspaceId) -> str | None:
    return (await client.get_workflow_handle(workflow_id(workspace)).describe()).run_id
