"""What every runtime keeps, whatever is under it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import pytest

from adapters.docker import DockerRuntime
from adapters.memory import MemoryRuntime
from adapters.runtime import Runtime
from domain.errors import ActionFailed, DataLost, ImagePullFailed, Unreachable, WorkspaceError
from domain.model import OperationId, WorkspaceId
from domain.observation import ContainerState, Presence, Resources
from tests.adapters.docker_relay import Relay
from tests.adapters.docker_world import DockerWorld, new_operation, new_workspace

NOTHING = Resources()
HOME_ONLY = Resources(volume=Presence.PRESENT)
OP = OperationId("op-1")


class World(Protocol):
    """A runtime, and a person who can do things behind its back."""

    @property
    def runtime(self) -> DockerRuntime | MemoryRuntime: ...

    image: str
    unobtainable_image: str

    async def cut(self) -> None: ...
    async def restore(self) -> None: ...
    def drop_container(self, workspace_id: WorkspaceId) -> None: ...
    def kill_container(self, workspace_id: WorkspaceId) -> None: ...
    def drop_volume(self, workspace_id: WorkspaceId) -> None: ...


class MemoryWorld:
    def __init__(self) -> None:
        self.runtime = MemoryRuntime()
        self.image = "image:1"
        self.unobtainable_image = "image:missing"
        self.runtime.missing_images.add(self.unobtainable_image)
        self.drop_container = self.runtime.drop_container
        self.kill_container = self.runtime.kill_container
        self.drop_volume = self.runtime.drop_volume

    async def cut(self) -> None:
        self.runtime.unreachable = True

    async def restore(self) -> None:
        self.runtime.unreachable = False


class RelayedWorld(DockerWorld):
    def __init__(self, docker_host: str, image: str, installation: str, relay: Relay) -> None:
        super().__init__(docker_host, image, installation)
        self.cut = relay.cut
        self.restore = relay.restore
        self.runtime = self.another(docker_host=relay.url)


@asynccontextmanager
async def relayed_world(docker_host: str, image: str, installation: str, folder: Path) -> AsyncIterator[RelayedWorld]:
    async with Relay(docker_host, folder / "docker.sock") as relay:
        world = RelayedWorld(docker_host, image, installation, relay)
        try:
            yield world
        finally:
            await relay.restore()
            await world.clean()


@pytest.fixture(params=["memory", pytest.param("docker", marks=pytest.mark.docker)])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    if request.param == "memory":
        yield MemoryWorld()
        return
    host, image, installation = map(request.getfixturevalue, ("docker_host", "test_image", "installation"))
    async with relayed_world(host, image, installation, tmp_path) as relayed:
        yield relayed


@pytest.fixture
def runtime(world: World) -> Runtime:
    return world.runtime


@pytest.fixture
def ws() -> WorkspaceId:
    return new_workspace()


async def test_nothing(runtime: Runtime, ws: WorkspaceId) -> None:
    """An unknown workspace has nothing, and taking it away again is fine."""
    await runtime.stop(ws)
    await runtime.remove_volume(ws)
    assert await runtime.observe(ws, probe=True) == NOTHING
    assert await runtime.observe_all() == {}


async def test_create_volume_twice(runtime: Runtime, ws: WorkspaceId) -> None:
    """A volume is made once; the second time it is left as it is, also for another operation."""
    for op in (OP, OP, new_operation()):
        await runtime.create_volume(ws, op)
        assert await runtime.observe(ws, probe=True) == HOME_ONLY
    assert await runtime.observe_all() == {ws: HOME_ONLY}


async def test_start_twice(runtime: Runtime, world: World, ws: WorkspaceId) -> None:
    """Started means ready; starting what runs keeps it, whichever operation asks."""
    await runtime.create_volume(ws, OP)
    await runtime.start(ws, world.image, OP)
    first = await runtime.observe(ws, probe=True)
    assert (first.container, first.volume) == (ContainerState.READY, Presence.PRESENT)
    assert first.endpoint
    for op in (OP, new_operation()):
        await runtime.start(ws, world.image, op)
        assert await runtime.observe(ws, probe=True) == first
    assert await runtime.observe_all() == {ws: first}


async def test_start_without_volume(runtime: Runtime, world: World, ws: WorkspaceId) -> None:
    """A missing home is a loss, never made anew; nothing is left behind."""
    for _ in range(2):
        with pytest.raises(DataLost):
            await runtime.start(ws, world.image, OP)
        assert await runtime.observe(ws, probe=True) == NOTHING
    assert await runtime.observe_all() == {}


async def test_stop_twice(runtime: Runtime, world: World, ws: WorkspaceId) -> None:
    """Stopping removes the container and keeps the volume."""
    await runtime.create_volume(ws, OP)
    await runtime.start(ws, world.image, OP)
    for _ in range(2):
        await runtime.stop(ws)
        assert await runtime.observe(ws, probe=True) == HOME_ONLY


async def test_remove_volume_twice(runtime: Runtime, ws: WorkspaceId) -> None:
    """A removed volume is gone, and removing it again is fine."""
    await runtime.create_volume(ws, OP)
    for _ in range(2):
        await runtime.remove_volume(ws)
        assert await runtime.observe(ws, probe=True) == NOTHING


async def test_remove_volume_in_use(runtime: Runtime, world: World, ws: WorkspaceId) -> None:
    """Container first, volume second: the reverse is refused and harms neither."""
    await runtime.create_volume(ws, OP)
    await runtime.start(ws, world.image, OP)
    before = await runtime.observe(ws, probe=True)
    with pytest.raises(ActionFailed, match="in use"):
        await runtime.remove_volume(ws)
    assert await runtime.observe(ws, probe=True) == before


async def test_container_removed_behind_its_back(runtime: Runtime, world: World, ws: WorkspaceId) -> None:
    """It is seen as absent and can be started again."""
    await runtime.create_volume(ws, OP)
    await runtime.start(ws, world.image, OP)
    world.drop_container(ws)
    assert await runtime.observe(ws, probe=True) == HOME_ONLY
    await runtime.start(ws, world.image, OP)
    assert (await runtime.observe(ws, probe=True)).container is ContainerState.READY


async def test_container_killed_behind_its_back(runtime: Runtime, world: World, ws: WorkspaceId) -> None:
    """It is seen as stopped, one by one and in the list, and can be started again."""
    await runtime.create_volume(ws, OP)
    await runtime.start(ws, world.image, OP)
    world.kill_container(ws)
    stopped = Resources(ContainerState.STOPPED, Presence.PRESENT)
    assert await runtime.observe(ws, probe=True) == stopped
    assert await runtime.observe_all() == {ws: stopped}
    await runtime.start(ws, world.image, OP)
    assert (await runtime.observe(ws, probe=True)).container is ContainerState.READY


async def test_volume_removed_behind_its_back(runtime: Runtime, world: World, ws: WorkspaceId) -> None:
    """No start on an empty home: DataLost, and what is left of the container goes."""
    await runtime.create_volume(ws, OP)
    world.drop_volume(ws)
    assert await runtime.observe(ws, probe=True) == NOTHING
    with pytest.raises(DataLost):
        await runtime.start(ws, world.image, OP)
    assert await runtime.observe(ws, probe=True) == NOTHING


async def test_image_that_cannot_be_had(runtime: Runtime, world: World, ws: WorkspaceId) -> None:
    """ImagePullFailed, no container, and the home stays."""
    await runtime.create_volume(ws, OP)
    for _ in range(2):
        with pytest.raises(ImagePullFailed):
            await runtime.start(ws, world.unobtainable_image, OP)
        assert await runtime.observe(ws, probe=True) == HOME_ONLY


async def test_unreachable(runtime: Runtime, world: World, ws: WorkspaceId) -> None:
    """What can't be seen is unknown, never absent; what can't be done says so; then all is as it was."""
    await runtime.create_volume(ws, OP)
    await runtime.start(ws, world.image, OP)
    before = await runtime.observe(ws, probe=True)
    await world.cut()
    for _ in range(2):
        assert not (await runtime.observe(ws, probe=True)).known
        for call in (
            runtime.observe_all(),
            runtime.create_volume(ws, OP),
            runtime.start(ws, world.image, OP),
            runtime.stop(ws),
            runtime.remove_volume(ws),
        ):
            with pytest.raises(Unreachable):
                await call
    await world.restore()
    assert await runtime.observe(ws, probe=True) == before


async def test_starts_side_by_side(runtime: Runtime, world: World, ws: WorkspaceId) -> None:
    """An attempt that was given up may still run next to its retry: one container, and all of them succeed."""
    await runtime.create_volume(ws, OP)
    ops = [OP, OP, OP, OP, OP]
    await asyncio.gather(*(runtime.start(ws, world.image, op) for op in ops))
    seen = await runtime.observe_all()
    assert seen.keys() == {ws}
    assert seen[ws].container is ContainerState.READY


async def test_start_and_stop_side_by_side(runtime: Runtime, world: World, ws: WorkspaceId) -> None:
    """Whatever wins, the home stays, and the next start gets there."""
    await runtime.create_volume(ws, OP)
    for _ in range(3):
        ended = await asyncio.gather(runtime.start(ws, world.image, OP), runtime.stop(ws), return_exceptions=True)
        assert all(e is None or isinstance(e, WorkspaceError) for e in ended), ended
        assert (await runtime.observe(ws, probe=True)).volume is Presence.PRESENT
    await runtime.start(ws, world.image, OP)
    assert (await runtime.observe(ws, probe=True)).container is ContainerState.READY


async def test_watch(runtime: Runtime, world: World) -> None:
    """Once entered, every change of a container or volume is told, whoever made it."""
    made, started, killed, dropped, lost = (new_workspace() for _ in range(5))
    for ws in (started, killed, dropped, lost):
        await runtime.create_volume(ws, OP)
    for ws in (killed, dropped):
        await runtime.start(ws, world.image, OP)
    async with world.runtime.watch() as changes:
        await runtime.create_volume(made, OP)
        await _told(changes, made)
        await runtime.start(started, world.image, OP)
        await _told(changes, started)
        world.kill_container(killed)
        await _told(changes, killed)
        world.drop_container(dropped)
        await _told(changes, dropped)
        world.drop_volume(lost)
        await _told(changes, lost)


async def test_watch_that_is_closed(world: World) -> None:
    """Whoever waits for the next change is let go, and there is none after, not even one that was not told yet."""

    async def all_of(changes: AsyncIterator[WorkspaceId]) -> None:
        async for _ in changes:  # other tests use this engine, too, and a volume's events don't say whose it is
            pass

    async with asyncio.timeout(10):
        async with world.runtime.watch() as changes:
            waiting = asyncio.ensure_future(all_of(changes))
            await asyncio.sleep(0)
        await waiting
        assert await anext(changes, None) is None
        async with world.runtime.watch() as untold:
            await world.runtime.create_volume(new_workspace(), OP)
        assert await anext(untold, None) is None


async def test_watch_of_an_engine_that_goes_away(world: World) -> None:
    """The watch ends with Unreachable; a new one is refused until the engine is back."""
    async with asyncio.timeout(30):
        async with world.runtime.watch() as changes:
            waiting = asyncio.ensure_future(_ended(changes))
            await asyncio.sleep(0)
            await world.cut()
            with pytest.raises(Unreachable):
                await waiting
        with pytest.raises(Unreachable):
            async with world.runtime.watch():
                pass
        await world.restore()
        async with world.runtime.watch():
            pass


async def _ended(changes: AsyncIterator[WorkspaceId]) -> None:
    """Whatever was still told of what others left."""
    async for _ in changes:
        pass


async def _told(changes: AsyncIterator[WorkspaceId], ws: WorkspaceId) -> None:
    async with asyncio.timeout(10):
        while await anext(changes) != ws:
            pass
