from collections.abc import AsyncIterator

import pytest

from adapters.docker.runtime import DockerRuntime
from adapters.postgres.database import open_database
from adapters.s3.store import S3ArchiveStore
from tests.archive.bench import Bench
from tests.archive.fixtures import archives, docker_runtime, s3_config, volumes
from tests.archive.scene import scene
from tests.archive.volumes import Volumes
from tests.processes.conftest import deploy, deployment

__all__ = ["archives", "deploy", "deployment", "docker_runtime", "s3_config", "scene", "volumes"]


@pytest.fixture
async def bench(
    database_url: str, docker_runtime: DockerRuntime, archives: S3ArchiveStore, volumes: Volumes
) -> AsyncIterator[Bench]:
    database = await open_database(database_url)
    yield Bench(database, docker_runtime, docker_runtime.homes(), archives, volumes)
    await database.close()
