"""The real image, made as `make up` makes it: built at the first run on a machine, loaded from the cache after."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from docker import APIClient

from adapters.docker import Limits
from starter.embedded.progress import NoProgress
from starter.ide.image import ensure_image
from tests.adapters.docker_world import DockerWorld, docker_world
from tests.ide.hub import Hub, hub_with
from tests.services import Services

GRACE = 10
"""Seconds until what does not obey SIGTERM is killed."""


@pytest.fixture(scope="session")
def ide_image(docker_host: str, services: Services) -> Iterator[str]:
    reference = f"codehub-ide:{services.installation}-{services.worker}"
    asyncio.run(ensure_image(docker_host, reference, NoProgress()))
    yield reference
    api = APIClient(docker_host)
    try:
        # Its other name stays: `make up` on the same engine has it at once.
        api.remove_image(reference, noprune=True)
    finally:
        api.close()


@pytest.fixture
async def world(docker_host: str, ide_image: str, installation: str) -> AsyncIterator[DockerWorld]:
    async with docker_world(docker_host, ide_image, installation, limits=Limits(), stop_grace_seconds=GRACE) as made:
        yield made


@pytest.fixture
async def hub(service_env: dict[str, str], ide_image: str, installation: str, tmp_path: Path) -> AsyncIterator[Hub]:
    async with hub_with({**service_env, "WORKSPACE_IMAGE": ide_image}, installation, tmp_path) as made:
        yield made
