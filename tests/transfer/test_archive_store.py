"""The contract of ArchiveStore, on a real S3 store: what it promises also when connections break."""

import asyncio
import hashlib
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from activities.integrity import is_intact
from adapters.archive_store import LARGEST_SMALL, OpenUpload
from adapters.s3.store import S3ArchiveStore
from domain.archive import ArchiveMeta
from domain.errors import ActionFailed, Unreachable
from domain.model import OperationId, WorkspaceId
from domain.observation import Presence
from tests.conftest import S3
from tests.faults.proxy import FaultProxy, eventually
from tests.faults.s3_proxy import S3Proxy
from tests.transfer.conftest import Opened

MIB = 1024 * 1024
KEY = "workspace/operation/home.tar.zst"


async def pieces(body: bytes, size: int = 5 * MIB) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


async def nothing() -> None:
    """A fence that nobody has overtaken."""


async def downloaded(store: S3ArchiveStore, key: str = KEY) -> bytes:
    return b"".join([chunk async for chunk in store.download(key)])


async def uploads(store: S3ArchiveStore) -> list[OpenUpload]:
    return [upload async for upload in store.list_uploads()]


def ignoring(store: S3ArchiveStore, conditions: set[str]) -> None:
    """As a store that takes no notice of these headers."""

    def drop(params: dict[str, Any], **_: object) -> None:
        for name in conditions:
            params["headers"].pop(name, None)

    store.client.meta.events.register("before-call.s3.PutObject", drop)


SMALL = ArchiveMeta(
    format_version=1,
    workspace_id=WorkspaceId("w"),
    archive_op_id=OperationId("o"),
    sha256="0" * 64,
    size=1000,
    raw_size=10240,
    entries=1,
    codehub_version="1",
    created_at=datetime.now(UTC),
)


@asynccontextmanager
async def endless() -> AsyncIterator[str]:
    """A store that is asked for an object and never comes to its end. Waits until whoever asked has left."""
    connections: set[asyncio.Task[None]] = set()

    async def go_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b'HTTP/1.1 200 OK\r\nETag: "x"\r\nTransfer-Encoding: chunked\r\n\r\n')
        with suppress(ConnectionError):
            while True:
                writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
                await writer.drain()

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(asyncio.ensure_future(go_on(reader, writer)))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with asyncio.timeout(30):
            await asyncio.gather(*connections)
    finally:
        server.close()
        for one in connections:
            one.cancel()


async def test_what_was_uploaded_is_what_is_downloaded(archives: S3ArchiveStore) -> None:
    body = os.urandom(11 * MIB + 17)
    await archives.upload(KEY, pieces(body), nothing)
    assert await downloaded(archives) == body
    assert await archives.size(KEY) == len(body)
    assert await archives.observe(KEY) is Presence.PRESENT
    assert await uploads(archives) == []


async def test_an_upload_that_fails_in_the_middle_leaves_nothing(archives: S3ArchiveStore) -> None:
    """Neither an object nor the parts of one, and what was there before stays."""
    await archives.upload(KEY, pieces(b"former"), nothing)

    async def broken() -> AsyncIterator[bytes]:
        yield os.urandom(5 * MIB)
        yield os.urandom(5 * MIB)
        raise EOFError

    with pytest.raises(EOFError):
        await archives.upload(KEY, broken(), nothing)
    assert await downloaded(archives) == b"former"
    assert await uploads(archives) == []


async def test_a_cancelled_upload_leaves_nothing(archives: S3ArchiveStore) -> None:
    began = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield os.urandom(5 * MIB)
        began.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(archives.upload(KEY, endless(), nothing))
    await began.wait()
    assert len(await uploads(archives)) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await archives.size(KEY) is None
    assert await uploads(archives) == []


@pytest.mark.parametrize("after", [1, 300_000, 6 * MIB])
async def test_an_upload_whose_connections_break_leaves_nothing(
    archives: S3ArchiveStore, s3: S3, at: Opened, after: int
) -> None:
    """Reset again and again, past all tries: Unreachable, no object, and no parts once the store answers."""
    async with FaultProxy(s3.endpoint) as proxy, at(proxy.url) as store:
        proxy.cut_after(up=after, times=10**6)
        with pytest.raises(Unreachable):
            await store.upload(KEY, pieces(os.urandom(24 * MIB), 8 * MIB), nothing)
        assert proxy.cuts
    assert await archives.size(KEY) is None
    for left in await uploads(archives):
        await archives.abort(left)
    assert await uploads(archives) == []


async def test_an_upload_survives_a_connection_that_breaks_once(s3: S3, at: Opened) -> None:
    body = os.urandom(12 * MIB)
    async with FaultProxy(s3.endpoint) as proxy, at(proxy.url) as store:
        proxy.cut_after(up=7 * MIB)
        await store.upload(KEY, pieces(body), nothing)
        assert proxy.cuts == 1
        assert await downloaded(store) == body
        assert await uploads(store) == []


@pytest.mark.parametrize("lost", [1, 2, 3])
async def test_an_upload_whose_begin_was_not_heard_of_leaves_nothing(
    archives: S3ArchiveStore, s3: S3, at: Opened, lost: int
) -> None:
    """The store begins one each time that it is asked; whoever hears of the last one only, or of none, ends all."""
    body = os.urandom(6 * MIB)
    async with S3Proxy(s3.endpoint) as proxy, at(proxy.url) as store:
        proxy.fail(500, method="POST", contains="uploads", times=lost, after=True)
        expected = pytest.raises(Unreachable) if lost == 3 else nullcontext()
        with expected:
            await store.upload(KEY, pieces(body), nothing)
        assert [call.what for call in proxy.calls].count("begin_upload") == min(lost + 1, 3)
    assert await uploads(archives) == []
    if lost < 3:
        assert await downloaded(archives) == body


async def test_whoever_is_superseded_ends_nobodys_upload(archives: S3ArchiveStore) -> None:
    """An attempt that wakes up late leaves that of the one that has taken over alone."""

    class Late(Exception):
        pass

    async def overtaken() -> None:
        raise Late

    await archives.client.create_multipart_upload(Bucket=archives.bucket, Key=KEY)
    with pytest.raises(Late):
        await archives.upload(KEY, pieces(b"late"), overtaken)
    assert len(await uploads(archives)) == 1


async def test_whoever_is_superseded_while_it_begins_ends_nobodys_upload(
    archives: S3ArchiveStore, s3: S3, at: Opened
) -> None:
    """Its begin is answered only the second time, and meanwhile another one has taken over: it ends what it knows to be
    its own, and leaves that of the other."""

    class Late(Exception):
        pass

    others: set[str] = set()

    async def overtakes(**_: object) -> None:
        begun = await archives.client.create_multipart_upload(Bucket=archives.bucket, Key=KEY)
        others.add(begun["UploadId"])

    async def overtaken() -> None:
        if others:
            raise Late

    async with S3Proxy(s3.endpoint) as proxy, at(proxy.url) as store:
        proxy.fail(500, method="POST", contains="uploads", times=1, after=True)
        # Coroutines are awaited, which the types do not know.
        store.client.meta.events.register("after-call.s3.CreateMultipartUpload", overtakes)  # type: ignore[arg-type]
        with pytest.raises(Late):
            await store.upload(KEY, pieces(b"late"), overtaken)
    left = {one.upload_id for one in await uploads(archives)}
    assert others < left
    # And the one that it never heard of, which could be anybody's: that is for GC.
    assert len(left) == len(others) + 1


async def test_an_upload_whose_completion_was_not_heard_of_is_complete(s3: S3, at: Opened) -> None:
    """The client asks again, and is told that there is no such upload any more."""
    body = os.urandom(6 * MIB)
    async with S3Proxy(s3.endpoint) as proxy, at(proxy.url) as store:
        proxy.fail(500, method="POST", contains="uploadId", times=1, after=True)
        await store.upload(KEY, pieces(body), nothing)
        assert [call.what for call in proxy.calls].count("complete") == 2
        assert await downloaded(store) == body
        assert await uploads(store) == []


async def test_a_part_on_its_way_moves(s3: S3, at: Opened) -> None:
    """Piece by piece, as the connection takes it, and not only when all of it has arrived. Read once: what botocore
    would read for checksums beforehand, it would read on the event loop."""
    sizes: list[int] = []
    async with at(s3.endpoint) as store:
        await store.upload(KEY, pieces(os.urandom(8 * MIB), 8 * MIB), nothing, sizes.append)
    assert sum(sizes) == 8 * MIB
    assert max(sizes[-20:]) < MIB


async def test_large_parts_are_not_in_memory_side_by_side(s3: S3, at: Opened) -> None:
    """Four times as large, and a third as many at a time."""
    async with S3Proxy(s3.endpoint) as proxy, at(proxy.url) as store:
        await store.upload(KEY, pieces(os.urandom(48 * MIB), 24 * MIB), nothing)
        first, second = (call for call in proxy.calls if call.what == "part")
        assert first.ended <= second.began


async def test_a_slow_upload_is_not_taken_for_a_broken_one(s3: S3, at: Opened) -> None:
    """A part that takes longer than the timeout passes, as long as its bytes move."""
    body = os.urandom(32 * MIB)
    async with FaultProxy(s3.endpoint) as proxy, at(proxy.url, timeout=4) as store:
        proxy.throttle(up=4 * MIB)
        began = time.monotonic()
        uploading = asyncio.create_task(store.upload(KEY, pieces(body, 32 * MIB), nothing))
        await eventually(lambda: proxy.up > 20 * MIB, 60)
        assert time.monotonic() - began > 4
        # The client waits for its answer from when it has written all, also for what then still lies in buffers.
        proxy.throttle()
        await uploading
        assert await downloaded(store) == body
        assert proxy.cuts == 0


async def test_former_uploads_are_ended_and_can_not_complete_later(archives: S3ArchiveStore) -> None:
    """A zombie that wakes up behind its last fence finds its upload gone: what a later attempt stored stays."""
    paused, released = asyncio.Event(), asyncio.Event()
    fences = 0

    async def second_fence_takes_long() -> None:
        nonlocal fences
        fences += 1
        if fences == 2:
            paused.set()
            await released.wait()

    zombie = asyncio.create_task(archives.upload(KEY, pieces(b"zombie"), second_fence_takes_long))
    await paused.wait()
    await archives.upload(KEY, pieces(b"later"), nothing)
    released.set()
    with pytest.raises(Unreachable, match="somebody ended the upload"):
        await zombie
    assert await downloaded(archives) == b"later"
    assert await uploads(archives) == []


async def test_uploads_can_be_ended_without_a_new_one(archives: S3ArchiveStore) -> None:
    """Those of this key only."""
    client, bucket = archives.client, archives.bucket
    for key in (KEY, f"{KEY}.other", "workspace/another/home.tar.zst"):
        await client.create_multipart_upload(Bucket=bucket, Key=key)
    await archives.end_uploads(KEY, nothing)
    assert sorted(upload.key for upload in await uploads(archives)) == [
        "workspace/another/home.tar.zst",
        f"{KEY}.other",
    ]


async def test_a_superseded_attempt_uploads_nothing(archives: S3ArchiveStore) -> None:
    class Late(Exception):
        pass

    async def overtaken() -> None:
        raise Late

    with pytest.raises(Late):
        await archives.upload(KEY, pieces(b"late"), overtaken)
    assert await archives.size(KEY) is None
    assert await uploads(archives) == []


@pytest.mark.parametrize("clean", [False, True])
async def test_a_download_goes_on_where_its_connection_broke(
    archives: S3ArchiveStore, s3: S3, at: Opened, clean: bool
) -> None:
    """Reset or ended, many times: the bytes are the same, and nearly none is fetched twice."""
    body = os.urandom(10 * MIB)
    await archives.upload(KEY, pieces(body), nothing)
    async with FaultProxy(s3.endpoint) as proxy, at(proxy.url) as store:
        proxy.cut_after(down=2 * MIB, times=4, clean=clean)
        assert hashlib.sha256(await downloaded(store)).digest() == hashlib.sha256(body).digest()
        assert proxy.cuts == 4
        assert proxy.down < 16 * MIB


async def test_a_download_does_not_go_on_with_another_object(archives: S3ArchiveStore, s3: S3, at: Opened) -> None:
    """Replaced in the middle: an error, never one half of each."""
    await archives.upload(KEY, pieces(os.urandom(10 * MIB)), nothing)
    async with FaultProxy(s3.endpoint) as proxy, at(proxy.url) as store:
        stream = store.download(KEY)
        await anext(stream)
        await archives.upload(KEY, pieces(os.urandom(10 * MIB)), nothing)
        await proxy.cut()
        with pytest.raises((ActionFailed, Unreachable)):
            [chunk async for chunk in stream]


async def test_a_download_that_gets_nowhere_ends(archives: S3ArchiveStore, s3: S3, at: Opened) -> None:
    await archives.upload(KEY, pieces(os.urandom(6 * MIB)), nothing)
    async with FaultProxy(s3.endpoint) as proxy, at(proxy.url) as store:
        stream = store.download(KEY)
        await anext(stream)
        await proxy.refuse()
        with pytest.raises(Unreachable):
            async for _ in stream:
                pass


async def test_a_full_store_says_so(s3: S3, at: Opened) -> None:
    async with S3Proxy(s3.endpoint) as proxy, at(proxy.url) as store:
        proxy.fail(507, method="PUT", code="InsufficientStorage")
        with pytest.raises(ActionFailed, match="full"):
            await store.upload(KEY, pieces(os.urandom(6 * MIB)), nothing)
        assert await uploads(store) == []


async def test_small_objects_are_replaced_only_where_nobody_else_did(archives: S3ArchiveStore) -> None:
    """The commit marker is written by compare-and-set: whoever wakes up late changes nothing."""
    assert await archives.replace(KEY, b"first", None)
    assert not await archives.replace(KEY, b"late", None)
    first = await archives.look(KEY)
    assert first is not None
    assert first.body == b"first"
    assert await archives.replace(KEY, b"second", first)
    assert not await archives.replace(KEY, b"late", first)
    assert not await archives.replace(KEY, b"late", None)
    assert await archives.read(KEY) == b"second"
    assert not await archives.replace("workspace/absent", b"late", first)


async def test_a_small_object_is_read_up_to_its_bound(archives: S3ArchiveStore) -> None:
    """Whatever somebody put in its place; all of it where it is one of ours."""
    await archives.write(KEY, b"x" * LARGEST_SMALL)
    assert await archives.read(KEY) == b"x" * LARGEST_SMALL
    await archives.write(KEY, b"x" * (3 * LARGEST_SMALL))
    found = await archives.look(KEY)
    assert found
    assert found.body == b"x" * LARGEST_SMALL
    assert await archives.replace(KEY, b"ours", found)
    assert await archives.read(KEY) == b"ours"


async def test_a_small_object_that_never_ends_is_given_up(at: Opened) -> None:
    """A store that goes on and on takes neither the worker's memory nor its time."""
    async with endless() as endpoint, at(endpoint) as store, asyncio.timeout(30):
        assert await store.read(KEY) == b"x" * LARGEST_SMALL


async def test_an_archive_that_never_ends_is_not_intact(at: Opened) -> None:
    """Reading it back stops where it should have ended."""
    async with endless() as endpoint, at(endpoint) as store, asyncio.timeout(30):
        assert not await is_intact(store, KEY, SMALL)


async def test_a_lost_answer_to_a_replacement_is_no_refusal(s3: S3, at: Opened) -> None:
    async with S3Proxy(s3.endpoint) as proxy, at(proxy.url) as store:
        proxy.fail(500, method="PUT", after=True, times=1)
        assert await store.replace(KEY, b"mine", None)
        assert await store.read(KEY) == b"mine"


async def test_stores_without_conditional_writes_still_store(s3: S3, at: Opened) -> None:
    async with S3Proxy(s3.endpoint) as proxy, at(proxy.url) as store:
        proxy.fail(501, method="PUT", code="NotImplemented", times=1)
        assert await store.replace(KEY, b"mine", None)
        assert await store.read(KEY) == b"mine"


@pytest.mark.parametrize("ignored", [set[str](), {"If-None-Match"}, {"If-Match"}, {"If-None-Match", "If-Match"}])
async def test_a_store_that_ignores_conditions_is_recognised(archives: S3ArchiveStore, ignored: set[str]) -> None:
    """Either of the two is enough. What is there stays as it is."""
    ignoring(archives, ignored)
    await archives.write(KEY, b"mine")
    assert await archives.is_guarded(KEY, b"mine") is not bool(ignored)
    assert await archives.read(KEY) == b"mine"


async def test_a_store_that_has_no_conditional_writes_is_recognised(s3: S3, at: Opened) -> None:
    async with S3Proxy(s3.endpoint) as proxy, at(proxy.url) as store:
        await store.write(KEY, b"mine")
        proxy.fail(501, method="PUT", code="NotImplemented")
        assert not await store.is_guarded(KEY, b"mine")


async def test_a_store_that_is_away_says_nothing_of_its_conditions(s3: S3, at: Opened) -> None:
    async with S3Proxy(s3.endpoint) as proxy, at(proxy.url) as store:
        proxy.fail(503, method="PUT")
        with pytest.raises(Unreachable):
            await store.is_guarded(KEY, b"mine")


async def test_deleting_is_idempotent(archives: S3ArchiveStore) -> None:
    await archives.write(KEY, b"x")
    await archives.delete([KEY, "workspace/never/was"])
    await archives.delete([KEY])
    assert await archives.observe(KEY) is Presence.ABSENT
    upload = await archives.client.create_multipart_upload(Bucket=archives.bucket, Key=KEY)
    open_one = (await uploads(archives))[0]
    assert open_one.upload_id == upload["UploadId"]
    await archives.abort(open_one)
    await archives.abort(open_one)
    assert await uploads(archives) == []


async def test_listings_are_complete_beyond_one_page(archives: S3ArchiveStore) -> None:
    """A page holds a thousand at most."""
    keys = [f"workspace/{number:04}/home.tar.zst" for number in range(1010)]
    slots = asyncio.Semaphore(32)

    async def put(key: str) -> None:
        async with slots:
            await archives.write(key, b"")

    await asyncio.gather(*(put(key) for key in keys))
    assert [found.key async for found in archives.list_objects()] == keys
    await archives.delete(keys)
    assert [found.key async for found in archives.list_objects()] == []


async def test_a_listing_that_breaks_off_is_no_short_listing(archives: S3ArchiveStore, s3: S3, at: Opened) -> None:
    await archives.write(KEY, b"x")
    async with S3Proxy(s3.endpoint) as proxy, at(proxy.url) as store:
        proxy.fail(503, method="GET", contains="list-type")
        with pytest.raises(Unreachable):
            [found async for found in store.list_objects()]


async def test_connections_are_given_back(s3: S3, at: Opened) -> None:
    """Downloads that nobody finishes, one after the other, hold no connection."""
    async with FaultProxy(s3.endpoint) as proxy, at(proxy.url) as store:
        await store.upload(KEY, pieces(os.urandom(6 * MIB)), nothing)
        for _ in range(70):
            stream = store.download(KEY)
            await anext(stream)
            await stream.aclose()  # type: ignore[attr-defined]
        await eventually(lambda: len(proxy._links) < 70)
