"""An engine that does not hold the node's homes: what is missing on it is unknown, and nothing is made on it."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from docker import APIClient

from adapters.docker.runtime import DockerRuntime
from domain.errors import Unreachable
from domain.model import OperationId, WorkspaceId
from domain.observation import UNKNOWN_RESOURCES, Presence
from tests.adapters.docker_world import DockerWorld, docker_world, new_workspace

pytestmark = pytest.mark.docker

OP = OperationId("op-1")


@pytest.fixture
async def world(docker_host: str, test_image: str, installation: str) -> AsyncIterator[DockerWorld]:
    async with docker_world(docker_host, test_image, installation) as made:
        yield made


@pytest.fixture
async def node(world: DockerWorld) -> AsyncIterator[DockerRuntime]:
    """As a worker sees it."""
    runtime = DockerRuntime(replace(world.config, marker=f"{world.config.installation}-node"))
    yield runtime
    _forget(world.api, runtime)
    await runtime.close()


def _forget(api: APIClient, runtime: DockerRuntime) -> None:
    """As when the engine is started without its disk."""
    api.remove_volume(runtime.config.marker, force=True)


async def knows_nothing(runtime: DockerRuntime, ws: WorkspaceId) -> None:
    assert await runtime.observe(ws, probe=False) == UNKNOWN_RESOURCES
    for call in (
        runtime.confirm(),
        runtime.observe_all(),
        runtime.create_volume(ws, OP),
        runtime.start(ws, "image", OP),
        runtime.remove_volume(ws),
    ):
        with pytest.raises(Unreachable):
            await call


async def test_nothing_is_absent_from_an_engine_without_its_data(world: DockerWorld, node: DockerRuntime) -> None:
    """Neither before it is registered, nor when the marker is gone or another's; with it, everything is as ever."""
    ws = new_workspace()
    await knows_nothing(node, ws)
    first = await node.identify()
    assert (await node.identify(), first.holds_homes) == (first, False)
    node.registered(first.marker)
    await node.confirm()
    assert (await node.observe(ws, probe=False)).gone
    await node.create_volume(ws, OP)
    assert (await node.identify()).holds_homes

    _forget(world.api, node)
    other = new_workspace()
    await knows_nothing(node, other)
    assert (await node.identify()).marker != first.marker
    await knows_nothing(node, other)
    # What is there is there.
    assert (await node.observe(ws, probe=False)).volume is Presence.PRESENT
