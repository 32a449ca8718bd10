from collections.abc import AsyncIterator

import pytest

from domain.model import OperationId, WorkspaceId
from tests.adapters.docker_world import DockerWorld, default_bridge, docker_world, new_workspace


@pytest.fixture
async def world(
    docker_host: str, test_image: str, installation: str, request: pytest.FixtureRequest
) -> AsyncIterator[DockerWorld]:
    """On a network of its own; see `tests.adapters.reach.on_both_networks`."""
    engines = getattr(request, "param", "own") == "engine"
    if engines:
        default_bridge(docker_host)
    async with docker_world(docker_host, test_image, installation, engines_network=engines) as made:
        yield made


@pytest.fixture
async def ws(world: DockerWorld) -> WorkspaceId:
    """A workspace in STANDBY."""
    made = new_workspace()
    await world.runtime.create_volume(made, OperationId("op-1"))
    return made
