from collections.abc import AsyncIterator

import pytest
from temporalio.client import Client

from adapters.s3.client import S3Config
from adapters.s3.store import S3ArchiveStore, open_store
from tests.conftest import S3
from tests.harness.bench import Bench, bench
from tests.harness.cases import heartbeats


@pytest.fixture
async def archives(s3: S3) -> AsyncIterator[S3ArchiveStore]:
    async with open_store(S3Config(s3.endpoint, s3.access_key, s3.bucket, s3.secret_key)) as store:
        yield store


@pytest.fixture
async def direct(temporal_client: Client, database_url: str, archives: S3ArchiveStore) -> AsyncIterator[Bench]:
    async with bench(temporal_client, database_url, archives, temporal=False) as opened:
        yield opened


@pytest.fixture
async def on_temporal(
    temporal_client: Client, database_url: str, archives: S3ArchiveStore, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Bench]:
    monkeypatch.setattr("activities.pulse.Pulse.beating", lambda _: heartbeats())
    async with bench(temporal_client, database_url, archives, temporal=True) as opened:
        yield opened
