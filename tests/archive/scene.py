"""Homes that are known to the byte, and a worker process of their own that is killed."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from temporalio.client import Client

from adapters.docker.runtime import DockerRuntime
from adapters.s3.client import S3Config
from adapters.s3.store import S3ArchiveStore
from tests.archive.bench import Bench
from tests.archive.kept import KeptHomes
from tests.faults.crashing import CrashingWorker
from tests.faults.proxy import FaultProxy
from workflows.client import Waker


@dataclass
class Scene:
    homes: KeptHomes
    worker: CrashingWorker
    store: FaultProxy

    async def make(self, count: int, fill: Callable[[int, Path], None], *, archived: int = 0) -> None:
        bench = self.homes.bench
        for number in range(count):
            made = bench.archived if number < archived else bench.workspace
            workspace, before = await made(partial(fill, number))
            self.homes.truth[workspace] = before


@pytest.fixture
async def scene(
    bench: Bench,
    archives: S3ArchiveStore,
    docker_runtime: DockerRuntime,
    temporal_client: Client,
    database_url: str,
    redis_url: str,
    docker_host: str,
    s3_config: S3Config,
    tmp_path: Path,
) -> AsyncIterator[Scene]:
    """Homes, and a worker process of their own whose store is as fast as a test wants."""
    await bench.database.execute("UPDATE installation SET id = $1", docker_runtime.config.installation)
    async with FaultProxy(s3_config.endpoint) as store:
        environment = {
            "DATABASE_URL": database_url,
            "REDIS_URL": redis_url,
            "TEMPORAL_ADDRESS": temporal_client.service_client.config.target_host,
            "TEMPORAL_NAMESPACE": temporal_client.namespace,
            "DOCKER_HOST": docker_host,
            "S3_ENDPOINT": store.url,
            "S3_ACCESS_KEY": s3_config.access_key,
            "S3_SECRET_KEY": s3_config.secret_key,
            "S3_BUCKET": s3_config.bucket,
            "COORDINATOR_IDLE_INTERVAL": "2",
            "COORDINATOR_RETRY_INTERVAL": "0.5",
            "RECONCILER_RETRY_BACKOFF": "0.2",
            "ARCHIVE_MAX_TRANSFERS": "16",
        }
        homes = KeptHomes(bench, archives, Waker(temporal_client), tmp_path)
        async with CrashingWorker(environment, tmp_path) as worker:
            yield Scene(homes, worker, store)


@asynccontextmanager
async def watched(homes: KeptHomes) -> AsyncIterator[None]:
    watch = asyncio.create_task(homes.watch())
    try:
        yield
        if watch.done():
            await watch
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
