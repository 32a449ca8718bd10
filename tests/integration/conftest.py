from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from temporalio.client import Client

from adapters.docker.config import DockerConfig
from adapters.docker.runtime import DockerRuntime
from adapters.memory.runtime import MemoryRuntime
from adapters.s3.client import S3Config
from adapters.s3.store import S3ArchiveStore, open_store
from tests.conftest import S3
from tests.integration.system import System, system


@pytest.fixture
async def docker_runtime(docker_host: str, installation: str) -> AsyncIterator[DockerRuntime]:
    own = f"{installation}-{uuid4().hex[:8]}"
    runtime = DockerRuntime(DockerConfig(own, docker_host=docker_host, stop_grace_seconds=2))
    yield runtime
    for workspace_id in await runtime.observe_all():
        await runtime.stop(workspace_id)
        await runtime.remove_volume(workspace_id)
    await runtime.remove_network()
    await runtime.close()


@pytest.fixture
async def on_docker(
    temporal_client: Client, database_url: str, docker_runtime: DockerRuntime, test_image: str
) -> AsyncIterator[System]:
    async with system(temporal_client, database_url, docker_runtime, test_image) as running:
        yield running


@pytest.fixture
async def in_memory(temporal_client: Client, database_url: str) -> AsyncIterator[System]:
    """Real Temporal and PostgreSQL; the engine is a dict, for what is about the control plane."""
    async with system(temporal_client, database_url, MemoryRuntime(), "image") as running:
        yield running


@pytest.fixture
async def archives(s3: S3) -> AsyncIterator[S3ArchiveStore]:
    async with open_store(S3Config(s3.endpoint, s3.access_key, s3.bucket, s3.secret_key)) as store:
        yield store


@pytest.fixture
async def with_archives(
    temporal_client: Client,
    database_url: str,
    docker_runtime: DockerRuntime,
    test_image: str,
    archives: S3ArchiveStore,
) -> AsyncIterator[System]:
    async with system(
        temporal_client, database_url, docker_runtime, test_image, archives=archives, homes=docker_runtime.homes()
    ) as running:
        yield running
