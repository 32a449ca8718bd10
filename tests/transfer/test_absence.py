"""Not there, or not to be known: a loss is what the store itself says, and nothing else that answers or is silent."""

import asyncio
from dataclasses import replace

import pytest

from activities.integrity import read_archive_meta
from adapters.s3.store import S3ArchiveStore
from domain.errors import ActionFailed, ArchiveCorrupted, DataLost, Unreachable
from domain.naming import archive_key, meta_key
from domain.observation import Presence
from tests.conftest import S3
from tests.faults.proxy import FaultProxy
from tests.faults.s3_proxy import S3Proxy
from tests.transfer.conftest import Opened
from tests.transfer.test_archive_store import KEY, SMALL, downloaded

SMALL_KEY = archive_key(SMALL.workspace_id, SMALL.archive_op_id)


async def test_a_loss_is_what_the_store_itself_says(archives: S3ArchiveStore, s3: S3, at: Opened) -> None:
    """A 404 to a download may come from anything between; what is there according to HEAD is asked for again."""
    await archives.write(KEY, b"home")
    async with S3Proxy(s3.endpoint) as proxy, at(proxy.url) as store:
        proxy.fail(404, method="GET", contains=KEY, times=1, code="NoSuchKey")
        assert await downloaded(store) == b"home"
        proxy.fail(404, method="GET", contains=KEY, code="NoSuchKey")
        with pytest.raises(ActionFailed) as failed:
            await downloaded(store)
        assert not isinstance(failed.value, DataLost)
    await archives.delete([KEY])
    with pytest.raises(DataLost):
        await downloaded(archives)


async def test_not_there_and_not_answering_are_different(archives: S3ArchiveStore, s3: S3, at: Opened) -> None:
    """Absent is said by the store only. Everything else is unknown: a loss must never be made up."""
    assert await archives.observe(KEY) is Presence.ABSENT
    assert await archives.size(KEY) is None
    assert await archives.read(KEY) is None
    with pytest.raises(DataLost):
        await downloaded(archives)
    async with FaultProxy(s3.endpoint) as proxy, at(proxy.url) as store:
        await proxy.refuse()
        assert await store.observe(KEY) is Presence.UNKNOWN
        for call in (store.size(KEY), store.read(KEY), downloaded(store), store.write(KEY, b"x")):
            with pytest.raises(Unreachable):
                await call


async def test_a_black_hole_is_unreachable_in_bounded_time(s3: S3, at: Opened) -> None:
    async with FaultProxy(s3.endpoint) as proxy, at(proxy.url, timeout=2) as store:
        proxy.black_hole()
        async with asyncio.timeout(60):
            assert await store.observe(KEY) is Presence.UNKNOWN
            calls = [store.write(KEY, b"x"), store.replace(KEY, b"x", None), store.read(KEY), store.delete([KEY])]
            for failed in await asyncio.gather(*calls, return_exceptions=True):
                assert isinstance(failed, Unreachable)


@pytest.mark.parametrize(
    ("status", "code"),
    [(403, "AccessDenied"), (500, "InternalError"), (503, "SlowDown"), (404, "NoSuchBucket"), (507, "NoSpace")],
)
async def test_refusals_are_no_absence(s3: S3, at: Opened, status: int, code: str) -> None:
    """A wrong key, a store in trouble, a bucket that is not there: none of them says that an archive is gone."""
    async with S3Proxy(s3.endpoint) as proxy, at(proxy.url) as store:
        proxy.fail(status, code=code)
        assert await store.observe(KEY) is Presence.UNKNOWN
        with pytest.raises((ActionFailed, Unreachable)):
            await store.read(KEY)


async def test_a_missing_bucket_is_no_absence(archives: S3ArchiveStore) -> None:
    """The wrong bucket in the settings, or a store that lost it: not the loss of every archive."""
    elsewhere = replace(archives, bucket="no-such-bucket-at-all")
    assert await elsewhere.observe(KEY) is Presence.UNKNOWN


async def test_a_passing_404_is_no_loss(archives: S3ArchiveStore, s3: S3, at: Opened) -> None:
    """Of the archive or of its .meta, and to whoever looks whether they are there."""
    await archives.write(SMALL_KEY, bytes(SMALL.size))
    await archives.write(meta_key(SMALL_KEY), SMALL.model_dump_json().encode())
    async with S3Proxy(s3.endpoint) as proxy, at(proxy.url) as store:
        proxy.fail(404, method="HEAD", ends="home.tar.zst", times=1, code="NoSuchKey")
        assert await store.observe(SMALL_KEY) is Presence.PRESENT
        proxy.fail(404, method="GET", ends=".meta", times=1, code="NoSuchKey")
        with pytest.raises(Unreachable):
            await read_archive_meta(store, SMALL.workspace_id, SMALL_KEY)
        assert await read_archive_meta(store, SMALL.workspace_id, SMALL_KEY) == SMALL
    await archives.delete([meta_key(SMALL_KEY)])
    with pytest.raises(ArchiveCorrupted):
        await read_archive_meta(archives, SMALL.workspace_id, SMALL_KEY)
