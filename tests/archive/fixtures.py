"""Fixtures on a real engine and a real store, apart from those of any other test that runs at the same time."""

from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from uuid import uuid4

import pytest
from docker import APIClient

from adapters.docker.config import DockerConfig
from adapters.docker.runtime import DockerRuntime
from adapters.s3.client import S3Config
from adapters.s3.store import S3ArchiveStore, open_store
from tests.archive.volumes import Volumes
from tests.conftest import S3


@pytest.fixture
async def docker_runtime(docker_host: str, installation: str) -> AsyncIterator[DockerRuntime]:
    """Of an installation of its own: what others have on the engine is not touched."""
    config = DockerConfig(f"{installation}-{uuid4().hex[:8]}", docker_host=docker_host, stop_grace_seconds=1)
    runtime = DockerRuntime(config)
    yield runtime
    await runtime.remove_network()
    await runtime.close()


@pytest.fixture
def volumes(docker_host: str, docker_runtime: DockerRuntime) -> Iterator[Volumes]:
    with closing(APIClient(docker_host, timeout=60)) as api:
        made = Volumes(api, docker_runtime)
        yield made
        made.clear()


@pytest.fixture
def s3_config(s3: S3) -> S3Config:
    return S3Config(s3.endpoint, s3.access_key, s3.bucket, s3.secret_key)


@pytest.fixture
async def archives(s3_config: S3Config) -> AsyncIterator[S3ArchiveStore]:
    async with open_store(s3_config) as store:
        yield store
