import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from temporalio.client import Client

from tests.adapters.docker_world import docker_world
from tests.conftest import S3
from tests.processes.deployment import Deployment, deployed

Deploy = Callable[..., Awaitable[Deployment]]


@pytest.fixture
async def deploy(
    database_url: str,
    redis_url: str,
    s3: S3,
    temporal_client: Client,
    docker_host: str,
    test_image: str,
    installation: str,
    tmp_path: Path,
) -> AsyncIterator[Deploy]:
    """`await deploy(DATABASE_URL=…)`: the run's services, but for those that are named here."""
    shared = {
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "S3_ENDPOINT": s3.endpoint,
        "S3_ACCESS_KEY": s3.access_key,
        "S3_SECRET_KEY": s3.secret_key,
        "S3_BUCKET": s3.bucket,
        "TEMPORAL_ADDRESS": temporal_client.service_client.config.target_host,
        "TEMPORAL_NAMESPACE": temporal_client.namespace,
        "DOCKER_HOST": docker_host,
        "WORKSPACE_IMAGE": test_image,
    }
    async with contextlib.AsyncExitStack() as stack:

        async def start(**env: str) -> Deployment:
            return await stack.enter_async_context(deployed({**shared, **env}, installation, docker_host, tmp_path))

        yield start


@pytest.fixture
async def deployment(deploy: Deploy) -> Deployment:
    return await deploy()


@pytest.fixture
async def slow_image(docker_host: str, test_image: str, installation: str) -> AsyncIterator[str]:
    """Takes a few seconds before it answers."""
    async with docker_world(docker_host, test_image, installation) as world:
        yield world.image_running("/bin/sh", "-c", "sleep 5; exec /entrypoint")
