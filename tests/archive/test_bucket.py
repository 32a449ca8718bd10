"""A bucket belongs to one installation: no other one archives into it, or collects garbage in it."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import structlog

from activities.bucket import OWNER_KEY, Bucket
from adapters.archive_store import SmallObject
from adapters.s3.client import S3Config
from adapters.s3.store import S3ArchiveStore, open_store
from domain.model import DesiredState, ErrorReason, Phase
from tests.archive.bench import Bench
from tests.conftest import S3
from tests.faults.s3_proxy import S3Proxy
from tests.processes.deployment import Deployment
from tests.processes.process import START_SECONDS, until
from tests.transfer.test_archive_store import ignoring


@pytest.fixture
async def store(s3: S3) -> AsyncIterator[S3ArchiveStore]:
    async with open_store(S3Config(s3.endpoint, s3.access_key, s3.bucket, s3.secret_key)) as opened:
        yield opened


class Unconditional(S3ArchiveStore):
    """A store that takes every write."""

    async def replace(self, key: str, body: bytes, former: SmallObject | None) -> bool:
        del former
        await self.write(key, body)
        return True


async def test_of_many_that_claim_it_at_once_one_gets_it(store: S3ArchiveStore) -> None:
    buckets = [Bucket(store, f"installation-{number}") for number in range(10)]
    (owner,) = set(await asyncio.gather(*(bucket.claim() for bucket in buckets)))
    assert owner in {bucket.installation for bucket in buckets}
    assert await store.read(OWNER_KEY) == owner.encode()


async def test_without_conditional_writes_the_last_one_has_it_and_the_others_notice(store: S3ArchiveStore) -> None:
    """Both found it to be nobody's. Whoever was overwritten is refused from its next archive on."""
    plain = Unconditional(store.client, store.bucket)
    first, last = Bucket(plain, "first"), Bucket(plain, "last")
    await first.require()
    await plain.write(OWNER_KEY, b"last")
    await last.require()
    assert await first.claim() == "last"


async def test_a_store_that_ignores_conditions_is_named_at_the_start(store: S3ArchiveStore) -> None:
    """It is worked with, as there may be no other; whoever runs it is told what that costs."""
    bucket = Bucket(store, "ours")
    with structlog.testing.capture_logs() as logs:
        await bucket.take()
    assert logs == []
    ignoring(store, {"If-None-Match"})
    with structlog.testing.capture_logs() as logs:
        await bucket.take()
    ((event, level, advice),) = [(line["event"], line["log_level"], line["advice"]) for line in logs]
    assert (event, level, "docs/production.md" in advice) == ("store_ignores_conditional_writes", "warning", True)
    assert await store.read(OWNER_KEY) == b"ours"


@pytest.mark.docker
async def test_a_worker_says_so_when_it_starts(deployment: Deployment) -> None:
    await deployment.worker()
    async with S3Proxy(deployment.env["S3_ENDPOINT"]) as proxy:
        proxy.fail(501, method="PUT", contains=OWNER_KEY, code="NotImplemented")
        other = await deployment.worker("other", S3_ENDPOINT=proxy.url)

        async def is_said() -> bool:
            return "store_ignores_conditional_writes" in other.output

        await until(is_said, START_SECONDS, "nothing was said of the store")


@pytest.mark.docker
async def test_nothing_is_archived_into_the_bucket_of_another(bench: Bench) -> None:
    """The operation says why, and the home stays."""
    await bench.archives.write(OWNER_KEY, b"theirs")
    workspace, before = await bench.workspace()
    step = await bench.claim(workspace, DesiredState.ARCHIVED)
    assert await bench.operate(workspace, step) is ErrorReason.ACTION_FAILED
    row = await bench.row(workspace)
    assert (row.phase, row.archive_key, bench.home(workspace)) == (Phase.ERROR, None, before)
    message = await bench.database.fetchval("SELECT error_message FROM operations WHERE id = $1", step.op_id)
    assert "another installation (theirs" in message
    assert [found.key async for found in bench.archives.list_objects()] == [OWNER_KEY]


@pytest.mark.docker
async def test_a_worker_does_not_serve_with_the_bucket_of_another(deployment: Deployment) -> None:
    """It ends, and says which setting is wrong; one that is nobody's is its own from the start."""
    archives = deployment.archives
    assert archives
    await archives.write(OWNER_KEY, b"theirs")
    refused = deployment.start("worker")
    assert await refused.ended() == 1
    assert ("another installation (theirs" in refused.output, "S3_BUCKET" in refused.output) == (True, True)
    await archives.delete([OWNER_KEY])
    await deployment.worker()
    owner = await deployment.database.fetchval("SELECT id FROM installation")

    async def is_claimed() -> bool:
        return await archives.read(OWNER_KEY) == str(owner).encode()

    await until(is_claimed, START_SECONDS, "the bucket was not claimed")
