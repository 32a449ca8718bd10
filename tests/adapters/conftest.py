from collections.abc import AsyncIterator

import pytest

from domain.model import OperationId, WorkspaceId
from tests.adapters.docker_world import DockerWorld, docker_world, new_workspace


@pytest.fixture
async def world(docker_host: str, test_image: str, installation: str) -> AsyncIterator[DockerWorld]:
    async with docker_world(docker_host, test_image, installation) as made:
        yield made


@pytest.fixture
async def ws(world: DockerWorld) -> WorkspaceId:
    """A workspace in STANDBY."""
    made = new_workspace()
    await world.runtime.create_volume(made, OperationId("op-1"))
    return made
