from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from adapters.s3.client import S3Config
from adapters.s3.store import S3ArchiveStore, open_store
from tests.archive.fixtures import archives, docker_runtime, s3_config, volumes
from tests.conftest import S3

__all__ = ["archives", "docker_runtime", "s3_config", "volumes"]

Opened = Callable[..., AbstractAsyncContextManager[S3ArchiveStore]]


@pytest.fixture
def at(s3: S3) -> Opened:
    """The same bucket through another address."""

    @asynccontextmanager
    async def opened(endpoint: str, timeout: float = 20) -> AsyncIterator[S3ArchiveStore]:
        async with open_store(S3Config(endpoint, s3.access_key, s3.bucket, s3.secret_key, timeout=timeout)) as store:
            yield store

    return opened
