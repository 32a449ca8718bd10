"""The engine's event stream."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from domain.model import OperationId, WorkspaceId
from domain.naming import volume_name
from tests.adapters.docker_relay import Relay
from tests.adapters.docker_world import DockerWorld, eventually, new_workspace

pytestmark = pytest.mark.docker

OP = OperationId("op-1")


async def test_no_gap_after_subscribing(world: DockerWorld) -> None:
    """What changes right after the watch was entered is told, every time."""
    for _ in range(15):
        ws = new_workspace()
        async with world.runtime.watch() as changes, asyncio.timeout(30):
            world.api.create_volume(volume_name(ws), labels=_labels(world, ws))
            assert await _next_of(changes, ws) == ws


async def test_others_are_not_told(world: DockerWorld) -> None:
    """Neither another installation's containers nor what has nothing to do with codehub."""
    other, ws = new_workspace(), new_workspace()
    theirs = _labels(world, other) | {"codehub.installation": "theirs", "codehub.role": "workspace"}
    async with world.runtime.watch() as changes, asyncio.timeout(60):
        for labels in (theirs, {}):
            made = world.api.create_container(world.image, name=f"ws-{other}", labels=labels)
            world.api.remove_container(made["Id"], force=True)
        world.api.create_volume(f"other-{other}")
        world.api.remove_volume(f"other-{other}")
        await world.runtime.create_volume(ws, OP)
        assert await _next_of(changes, other, ws) == ws


async def test_names_and_labels_that_are_no_ids(world: DockerWorld) -> None:
    """Anybody can give them, and no query for ids is to stumble over them: neither events nor a sweep tell them."""
    ws = new_workspace()
    odd = [WorkspaceId(f"team-{world.config.installation}"), WorkspaceId(ws.upper())]
    async with world.runtime.watch() as changes, asyncio.timeout(60):
        for each in odd:
            world.api.create_volume(volume_name(each), labels=_labels(world, each))
            made = world.api.create_container(
                world.image, name=f"ws-{each}", labels=_labels(world, each) | {"codehub.role": "workspace"}
            )
            world.api.start(made["Id"])
        await world.runtime.create_volume(ws, OP)
        assert await _next_of(changes, *odd, ws) == ws
    assert set(await world.runtime.observe_all()) == {ws}


async def test_a_slow_reader_is_told_once(world: DockerWorld) -> None:
    """Changes wait as workspaces, not as events: a storm of them takes no memory."""
    storm, after = new_workspace(), new_workspace()
    async with world.runtime.watch() as changes, asyncio.timeout(120):
        for _ in range(20):
            await world.runtime.create_volume(storm, OP)
            await world.runtime.remove_volume(storm)
        await world.runtime.create_volume(after, OP)
        await eventually(lambda: after in changes._changed)
        assert [await _next_of(changes, storm, after) for _ in range(2)] == [storm, after]
        assert not {storm, after} & changes._changed.keys()


async def test_closing_ends_connection_and_thread(world: DockerWorld, tmp_path: Path) -> None:
    """At once, also when nothing happens at the engine."""
    async with Relay(world.host, tmp_path / "docker.sock") as relay:
        runtime = world.another(docker_host=relay.url)
        async with runtime.watch():
            assert _threads() == 1
            before = relay.connections
        await eventually(lambda: relay.connections < before and _threads() == 0)
        forgotten = runtime.watch()
        await forgotten.__aenter__()
        await runtime.close()
        await eventually(lambda: relay.connections == 0 and _threads() == 0)


async def test_entering_that_is_cancelled(world: DockerWorld, tmp_path: Path) -> None:
    """An engine that hangs holds nobody, and is left once it answers."""
    async with Relay(world.host, tmp_path / "docker.sock") as relay:
        runtime = world.another(docker_host=relay.url)
        await runtime.ping()
        relay.hang()
        watch = runtime.watch()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await watch.__aenter__()
        closing = asyncio.ensure_future(watch.aclose())
        await relay.restore()
        await closing
        await eventually(lambda: _threads() == 0)
        await runtime.close()


async def _next_of(changes: AsyncIterator[WorkspaceId], *ours: WorkspaceId) -> WorkspaceId:
    """Other tests use this engine, too, and a volume's events don't say whose it is."""
    while (told := await anext(changes)) not in ours:
        pass
    return told


def _threads() -> int:
    return sum(thread.name == "docker-stream" for thread in threading.enumerate())


def _labels(world: DockerWorld, ws: WorkspaceId) -> dict[str, str]:
    return {"codehub.installation": world.config.installation, "codehub.workspace": ws, "codehub.role": "home"}
