"""`codehub api` as a process: how much memory a large body takes, and how it ends."""

import asyncio
import re
import time
from pathlib import Path

import aiohttp
import pytest
import websockets
from redis.asyncio import Redis

from adapters.postgres.database import open_database
from adapters.redis.activity import ActivityLog
from tests.proxy.process import Served, served
from tests.proxy.test_websocket import echo
from tests.proxy.world import Workspace, closed, comes
from tests.telemetry.exposed import samples

MIB = 1024 * 1024
BLOCK = b"\xa5" * (256 * 1024)


@pytest.mark.parametrize(
    "size", [128 * MIB, pytest.param(1024 * MIB, marks=pytest.mark.full)], ids=["128 MiB", "1 GiB"]
)
@pytest.mark.timeout(900)
async def test_memory_stays_flat(database_url: str, redis_url: str, tmp_path: Path, ws: Workspace, size: int) -> None:
    """Up and down, by length and in chunks: at most 32 MiB more than before (PROMISE 30), and every byte arrives."""
    counted = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal counted
        head = await reader.readuntil(b"\r\n\r\n")
        counted = 0
        if head.startswith(b"GET"):
            chunked = b"X-Chunked" in head
            writer.write(
                b"HTTP/1.1 200 OK\r\n%b\r\n\r\n"
                % (b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % size)
            )
            for _ in range(size // len(BLOCK)):
                writer.write(b"%x\r\n%b\r\n" % (len(BLOCK), BLOCK) if chunked else BLOCK)
                await writer.drain()
            writer.write(b"0\r\n\r\n" if chunked else b"")
            await writer.drain()
            return
        length = re.search(rb"Content-Length: (\d+)", head)
        if length:
            while counted < int(length[1]):
                piece = await reader.read(MIB)
                assert piece
                counted += len(piece)
        else:
            while (chunk := int((await reader.readline()).strip(), 16)) > 0:
                counted += chunk
                await reader.readexactly(chunk + 2)
            await reader.readline()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    ws.handler = handler
    async with served(database_url, redis_url, ws.endpoint, tmp_path) as server:
        await _up(server, 8 * MIB, chunked=False)
        for chunked in (False, True):
            server.process.forget_peak()
            before, _ = server.process.memory()
            await _up(server, size, chunked=chunked)
            assert counted == size
            await _down(server, size, chunked=chunked)
            assert server.process.memory()[1] - before <= 32 * MIB


async def test_a_slow_reader_costs_little(database_url: str, redis_url: str, tmp_path: Path, ws: Workspace) -> None:
    """A client that reads nothing holds the workspace up, not the proxy's memory."""
    sent = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (1024 * MIB))
        while True:
            writer.write(BLOCK)
            await writer.drain()
            sent += len(BLOCK)

    ws.handler = handler
    async with served(database_url, redis_url, ws.endpoint, tmp_path) as server:
        # A login takes some, for a moment.
        server.process.forget_peak()
        before, _ = server.process.memory()
        # The reader of this side is what does not read: its buffer is small.
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
        writer.write(server.head("GET"))
        # Not yet is not "no more".
        await comes(lambda: sent > 0, 60)
        last = -1
        while sent != last:
            last = sent
            await asyncio.sleep(0.5)
        assert 0 < sent < 64 * MIB
        assert server.process.memory()[1] - before <= 32 * MIB
        writer.transport.abort()
        await closed(writer)


async def test_answers_that_nobody_reads_are_not_made(database_url: str, redis_url: str, tmp_path: Path) -> None:
    """Whoever sends request after request, and reads nothing, is not logged in and costs little; once they read, each
    request has its answer."""
    count, ask = 5000, b"GET /w/ HTTP/1.1\r\nHost: a\r\nAccept: text/html\r\n\r\n"
    async with served(database_url, redis_url, "127.0.0.1:9", tmp_path) as server:
        server.process.forget_peak()
        before, _ = server.process.memory()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
        writer.write(ask * count)
        await asyncio.sleep(2)
        assert server.process.memory()[1] - before <= 16 * MIB
        answers, size, tail = 0, 0, b""
        while answers < count:
            piece = await asyncio.wait_for(reader.read(MIB), 30)
            assert piece, f"{answers} answers"
            answers += (tail + piece).count(b"HTTP/1.1 404 ") - tail.count(b"HTTP/1.1 404 ")
            size, tail = size + len(piece), (tail + piece)[-12:]
        assert size > 32 * MIB, "all of it would have fitted into memory: this test says nothing"
        writer.close()
        await closed(writer)


async def test_sigterm(database_url: str, redis_url: str, tmp_path: Path) -> None:
    """WebSockets are counted and told to come back, what was active is reported, and it is over within five seconds."""
    async with echo() as (endpoint, _), served(database_url, redis_url, endpoint, tmp_path) as sockets:
        url = f"ws://{sockets.host}{sockets.path}"
        headers = {"Cookie": sockets.cookie}
        async with websockets.connect(
            url,
            origin=f"http://{sockets.host}",  # type: ignore[arg-type]
            additional_headers=headers,
            proxy=None,
        ) as client:
            await client.send("x")
            assert await client.recv() == "x"
            shown = await _metrics(sockets)
            assert shown["codehub_proxy_websockets"][()] == 1
            assert shown["codehub_proxy_requests_total"][("websocket",)] == 1
            started = time.monotonic()
            sockets.process.terminate()
            await asyncio.wait_for(client.wait_closed(), 15)
            assert client.close_code == 1012
        assert await sockets.process.ended() == 0
        # Five seconds are the promise; the machine may be busy.
        assert time.monotonic() - started < 15
        assert await _reported(redis_url, database_url) == {sockets.workspace_id}


async def test_sigterm_lets_an_answer_end(database_url: str, redis_url: str, tmp_path: Path, ws: Workspace) -> None:
    """The rest of it arrives after the signal, and the connection is closed after it."""
    go_on = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\none")
        await go_on.wait()
        writer.write(b"two")

    ws.handler = handler
    async with served(database_url, redis_url, ws.endpoint, tmp_path) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(server.head("GET"))
        await reader.readuntil(b"one")
        server.process.terminate()
        await asyncio.sleep(0.3)
        go_on.set()
        assert await asyncio.wait_for(reader.read(), 20) == b"two"
        assert await server.process.ended() == 0
        await closed(writer)


async def _reported(redis_url: str, database_url: str) -> set[str]:
    """Which workspaces were told to be active: to Redis or, where that takes a second, straight to PostgreSQL."""
    redis: Redis = Redis.from_url(redis_url)
    database = await open_database(database_url)
    rows = await database.fetch("SELECT id FROM workspaces WHERE last_access_at IS NOT NULL")
    found = {*await ActivityLog(redis).read(), *(str(row["id"]) for row in rows)}
    await database.close()
    await redis.aclose()
    return found


async def _metrics(server: Served) -> dict[str, dict[tuple[str, ...], float]]:
    url = f"http://{server.host}/metrics"
    async with aiohttp.ClientSession() as client, client.get(url, headers={"Cookie": server.cookie}) as answer:
        assert answer.status == 200
        return samples(await answer.text())


async def _up(server: Served, size: int, *, chunked: bool) -> None:
    framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {size}"
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(server.head("PUT", framing))
    for _ in range(size // len(BLOCK)):
        writer.write(b"%x\r\n%b\r\n" % (len(BLOCK), BLOCK) if chunked else BLOCK)
        await writer.drain()
    if chunked:
        writer.write(b"0\r\n\r\n")
    assert (await asyncio.wait_for(reader.readuntil(b"ok"), 60)).startswith(b"HTTP/1.1 200")
    await closed(writer)


async def _down(server: Served, size: int, *, chunked: bool) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=4 * MIB)
    writer.write(server.head("GET", *(["X-Chunked: 1"] if chunked else [])))
    await reader.readuntil(b"\r\n\r\n")
    received = 0
    if chunked:
        while (length := int((await reader.readline()).strip(), 16)) > 0:
            received += length
            await reader.readexactly(length + 2)
    else:
        while received < size:
            piece = await reader.read(MIB)
            assert piece
            received += len(piece)
    assert received == size
    await closed(writer)
