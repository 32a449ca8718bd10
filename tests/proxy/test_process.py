"""The server as a process: how much memory a large body takes, and how it ends."""

import asyncio
import signal
import time

import pytest
import websockets

from tests.proxy.process import Served, served
from tests.proxy.test_websocket import echo
from tests.proxy.world import Workspace, closed

MIB = 1024 * 1024
BLOCK = b"\xa5" * (256 * 1024)


@pytest.mark.parametrize(
    "size", [128 * MIB, pytest.param(1024 * MIB, marks=pytest.mark.full)], ids=["128 MiB", "1 GiB"]
)
@pytest.mark.timeout(900)
async def test_memory_stays_flat(database_url: str, redis_url: str, ws: Workspace, size: int) -> None:
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
        if b"Content-Length" in head:
            while counted < size:
                counted += len(await reader.read(MIB))
        else:
            while (length := int((await reader.readline()).strip(), 16)) > 0:
                counted += length
                await reader.readexactly(length + 2)
            await reader.readline()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    ws.handler = handler
    async with served(database_url, redis_url, ws.endpoint) as server:
        await _up(server, 8 * MIB, chunked=False, expected=None)
        for chunked in (False, True):
            server.forget_peak()
            before, _ = server.memory()
            await _up(server, size, chunked=chunked, expected=size)
            assert counted == size
            await _down(server, size, chunked=chunked)
            assert server.memory()[1] - before <= 32 * MIB


async def test_a_slow_reader_costs_little(database_url: str, redis_url: str, ws: Workspace) -> None:
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
    async with served(database_url, redis_url, ws.endpoint) as server:
        before, _ = server.memory()
        # The reader of this side is what does not read: its buffer is small.
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
        writer.write(server.head("GET"))
        last = -1
        while sent != last:
            last = sent
            await asyncio.sleep(0.5)
        assert 0 < sent < 64 * MIB
        assert server.memory()[1] - before <= 32 * MIB
        writer.transport.abort()
        await closed(writer)


async def test_sigterm(database_url: str, redis_url: str) -> None:
    """WebSockets are told to come back, and it is over within five seconds."""
    async with echo() as (endpoint, _), served(database_url, redis_url, endpoint) as sockets:
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
            started = time.monotonic()
            sockets.process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(client.wait_closed(), 5)
            assert client.close_code == 1012
        await asyncio.wait_for(sockets.process.wait(), 10)
        assert (sockets.process.returncode, time.monotonic() - started < 5) == (0, True)


async def test_sigterm_lets_an_answer_end(database_url: str, redis_url: str, ws: Workspace) -> None:
    """The rest of it arrives after the signal, and the connection is closed after it."""
    go_on = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\none")
        await go_on.wait()
        writer.write(b"two")

    ws.handler = handler
    async with served(database_url, redis_url, ws.endpoint) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(server.head("GET"))
        await reader.readuntil(b"one")
        server.process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.3)
        go_on.set()
        assert await asyncio.wait_for(reader.read(), 5) == b"two"
        await asyncio.wait_for(server.process.wait(), 10)
        assert server.process.returncode == 0
        await closed(writer)


async def _up(server: Served, size: int, *, chunked: bool, expected: int | None) -> None:
    framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {size}"
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(server.head("PUT", framing))
    for _ in range(size // len(BLOCK)):
        writer.write(b"%x\r\n%b\r\n" % (len(BLOCK), BLOCK) if chunked else BLOCK)
        await writer.drain()
    if chunked:
        writer.write(b"0\r\n\r\n")
    if expected is not None:
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
