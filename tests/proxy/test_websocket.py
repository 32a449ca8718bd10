"""WebSockets through the proxy, with real clients and servers."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
import websockets
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed, InvalidStatus

from adapters.redis.activity_kinds import ActivityKind
from starter.proxy.frames import close_frame
from starter.proxy.tunnel import Tunnel
from tests.proxy.world import Person, Workspace, World, comes, serving, until


@asynccontextmanager
async def echo(**options: Any) -> AsyncIterator[tuple[str, list[ServerConnection]]]:
    """A workspace that echoes; with the connections it has had."""
    seen: list[ServerConnection] = []

    async def handler(connection: ServerConnection) -> None:
        seen.append(connection)
        with contextlib.suppress(ConnectionClosed):
            async for message in connection:
                await connection.send(message)

    async with serve(handler, "127.0.0.1", 0, max_size=None, **options) as server:
        yield f"127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}", seen


@asynccontextmanager
async def connected(world: World, person: Person, path: str, **options: Any) -> AsyncIterator[ClientConnection]:
    async with websockets.connect(
        f"ws://{world.host}{path}",
        origin=world.origin,  # type: ignore[arg-type]
        additional_headers={"Cookie": person.cookie},
        max_size=None,
        proxy=None,
        **options,
    ) as client:
        yield client


async def test_messages_both_ways(world: World, alice: Person) -> None:
    """Text and bytes, small and large, fragmented and empty, in order."""
    async with echo() as (endpoint, seen):
        path = f"/w/{await world.row(alice, endpoint)}/socket?a=b"
        async with connected(world, alice, path) as client:
            for message in ("hello", b"\x00\xff" * 10, "", "é" * 70000, b"x" * 3_000_000):
                await client.send(message)
                assert await asyncio.wait_for(client.recv(), 20) == message
            await client.send(["in ", "three ", "fragments"])
            assert await client.recv() == "in three fragments"
        request = seen[0].request
        assert request is not None
        assert request.path == "/socket?a=b"
        assert "cookie" not in request.headers
        assert request.headers["Origin"] == world.origin
        assert request.headers["Host"] == world.host


async def test_what_the_ends_agree_on(world: World, alice: Person) -> None:
    """A subprotocol is agreed on end to end. Compression is not: keep-alives have to be told from activity."""
    async with echo(subprotocols=["b"]) as (endpoint, _):
        path = f"/w/{await world.row(alice, endpoint)}/"
        async with connected(world, alice, path, subprotocols=["a", "b"]) as client:
            assert client.protocol.extensions == []
            assert client.subprotocol == "b"
            await client.send("x" * 100_000)
            assert await client.recv() == "x" * 100_000


async def test_pings_and_closes_pass(world: World, alice: Person) -> None:
    """A ping is answered by the workspace; a close code arrives on the other side, either way."""
    async with echo() as (endpoint, seen):
        path = f"/w/{await world.row(alice, endpoint)}/"
        async with connected(world, alice, path) as client:
            await asyncio.wait_for(await client.ping(), 20)
            await client.close(4001, "mine")
        await asyncio.wait_for(seen[0].wait_closed(), 20)
        assert (seen[0].close_code, seen[0].close_reason) == (4001, "mine")
        async with connected(world, alice, path) as client:
            await client.send("x")
            await client.recv()
            await seen[1].close(4002, "theirs")
            await asyncio.wait_for(client.wait_closed(), 20)
            assert (client.close_code, client.close_reason) == (4002, "theirs")
    await comes(lambda: not world.proxy.open)


async def test_a_refused_handshake_is_the_workspaces_answer(
    world: World, alice: Person, ws: Workspace, at: str
) -> None:
    """What a workspace answers instead of an upgrade arrives as it is."""
    ws.answer = b"HTTP/1.1 403 Forbidden\r\nX-Why: no\r\nContent-Length: 4\r\n\r\nnope"
    with pytest.raises(InvalidStatus) as refused:
        async with connected(world, alice, at):
            pass
    assert (refused.value.response.status_code, refused.value.response.headers["X-Why"]) == (403, "no")
    assert ws.header("connection") == ["Upgrade"]
    assert ws.header("upgrade") == ["websocket"]


@pytest.mark.parametrize(
    ("phase", "operation"),
    [("STANDBY", None), ("STANDBY", "STARTING"), ("ARCHIVED", None), ("PENDING", None), ("ERROR", None)],
)
async def test_1013(world: World, alice: Person, phase: str, operation: str | None) -> None:
    """Not RUNNING: accepted, and closed with "try again later"; nothing is woken. aiohttp's client says the same."""
    reason = {"error_reason": "Timeout"} if phase == "ERROR" else {}
    desired = phase if phase in {"STANDBY", "ARCHIVED"} else "STANDBY" if phase == "ERROR" else "ARCHIVED"
    workspace_id = await world.row(alice, phase=phase, desired_state=desired, **reason)
    if operation:
        await world.busy(workspace_id, operation)
    async with connected(world, alice, f"/w/{workspace_id}/", subprotocols=["x"]) as client:
        with pytest.raises(ConnectionClosed) as close:
            await asyncio.wait_for(client.recv(), 20)
    assert close.value.rcvd is not None
    assert close.value.rcvd.code == 1013
    headers = {"Cookie": alice.cookie, "Origin": world.origin}
    async with aiohttp.ClientSession() as session:
        url = f"http://{world.host}/w/{workspace_id}/"
        async with session.ws_connect(url, headers=headers) as socket_:
            assert (await socket_.receive(5)).data == 1013
    assert world.wakes.woken == []


async def test_a_dead_upstream_is_1013(world: World, alice: Person) -> None:
    """RUNNING, but nothing listens: the client may come back."""
    async with connected(world, alice, f"/w/{await world.row(alice, '127.0.0.1:1')}/") as client:
        with pytest.raises(ConnectionClosed) as close:
            await asyncio.wait_for(client.recv(), 10)
    assert close.value.rcvd is not None
    assert close.value.rcvd.code == 1013


async def test_the_workspaces_death_ends_it(world: World, alice: Person) -> None:
    """A workspace that is killed takes its WebSockets with it, at once."""
    async with echo() as (endpoint, seen):
        path = f"/w/{await world.row(alice, endpoint)}/"
        async with connected(world, alice, path) as client:
            await client.send("x")
            await client.recv()
            seen[0].transport.abort()
            await asyncio.wait_for(client.wait_closed(), 20)
        await comes(lambda: not world.proxy.open)


async def test_the_clients_death_ends_it(world: World, alice: Person) -> None:
    """And the other way round."""
    async with echo() as (endpoint, seen):
        path = f"/w/{await world.row(alice, endpoint)}/"
        with contextlib.suppress(ConnectionClosed):
            async with connected(world, alice, path) as client:
                await client.send("x")
                await client.recv()
                client.transport.abort()
        await asyncio.wait_for(seen[0].wait_closed(), 20)


async def test_half_close(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """A side that has ended still gets what the other has to say."""
    done = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        assert await reader.read() == b"bye"
        await done.wait()
        writer.write(b"the last words")

    ws.handler = handler
    async with world.connect() as (reader, writer):
        writer.write(_handshake(world, alice, at))
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"bye")
        writer.write_eof()
        done.set()
        assert await asyncio.wait_for(reader.read(), 20) == b"the last words"


async def test_what_comes_with_the_handshake(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """Bytes that arrive in one packet with either head are the first of the tunnel."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n\x81\x02hi")
        assert await reader.read(100) == b"early"
        writer.write(b"done")

    ws.handler = handler
    async with world.connect() as (reader, writer):
        writer.write(_handshake(world, alice, at) + b"early")
        answer = await asyncio.wait_for(reader.readuntil(b"done"), 20)
    assert answer.startswith(b"HTTP/1.1 101 ")
    assert answer.endswith(b"\r\n\r\n\x81\x02hidone")


async def test_back_pressure(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """Who doesn't read slows the other side down: what is under way stays within buffers, both ways."""
    sent = {"up": 0, "down": 0}
    block = b"x" * 65536

    async def flood(writer: asyncio.StreamWriter, way: str) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(block)
                await writer.drain()
                sent[way] += len(block)

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        await flood(writer, "down")

    ws.handler = handler
    async with world.connect() as (reader, writer):
        writer.write(_handshake(world, alice, at))
        await reader.readuntil(b"\r\n\r\n")
        up = asyncio.create_task(flood(writer, "up"))
        settled = dict(sent)

        async def stopped() -> bool:
            nonlocal settled
            before, settled = settled, dict(sent)
            await asyncio.sleep(0.3)
            return before == sent and min(sent.values()) > 0

        await until(stopped, 30)
        assert max(sent.values()) < 24 * 1024 * 1024
        up.cancel()
        await asyncio.gather(up, return_exceptions=True)
        writer.transport.abort()


async def test_what_counts_as_activity(world: World, alice: Person) -> None:
    """Messages in both directions do; pings, pongs and an open tab that sends nothing don't."""
    async with echo(ping_interval=None) as (endpoint, seen):
        workspace_id = await world.row(alice, endpoint)
        async with connected(world, alice, f"/w/{workspace_id}/", ping_interval=None) as client:
            await comes(lambda: bool(seen))
            world.proxy.activity.seen.clear()
            await asyncio.wait_for(await client.ping(), 20)
            await asyncio.wait_for(await seen[0].ping(), 20)
            assert world.proxy.activity.seen == {}
            await seen[0].send("output")
            await client.recv()
            assert _kind(world, workspace_id) is ActivityKind.FROM_WORKSPACE
            world.proxy.activity.seen.clear()
            async with asyncio.timeout(20):
                await client.send("x")
                while _kind(world, workspace_id) is None:
                    await asyncio.sleep(0.01)
        world.proxy.activity.seen.clear()
        headers = {"Cookie": alice.cookie, "X-Codehub-No-Activity": "1"}
        url = f"ws://{world.host}/w/{workspace_id}/"
        async with websockets.connect(url, origin=world.origin, additional_headers=headers, proxy=None) as client:  # type: ignore[arg-type]
            await client.send("probe")
            await client.recv()
        assert world.proxy.activity.seen == {}
        request = seen[-1].request
        assert request is not None
        assert "X-Codehub-No-Activity" not in request.headers


async def test_a_quiet_one_is_not_cut(database_url: str, redis_url: str) -> None:
    """TCP watches whether the peer is there. The time that an idle HTTP connection has, and the time that a page has to
    begin, are not a WebSocket's: silent for longer than both, it still echoes.
    """
    async with serving(database_url, redis_url, keep_alive=1) as world, echo(ping_interval=None) as (endpoint, _):
        world.proxy.page_timeout = 1.0
        alice = await world.person("alice")
        path = f"/w/{await world.row(alice, endpoint)}/"
        async with connected(world, alice, path, ping_interval=None) as client:
            await comes(lambda: any(isinstance(one, Tunnel) for one in world.proxy.open))
            (tunnel,) = world.proxy.open
            for end in (tunnel.client_end, tunnel.upstream_end):  # type: ignore[union-attr]
                found = end.transport.get_extra_info("socket")
                assert found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            await asyncio.sleep(3)
            await client.send("still here")
            async with asyncio.timeout(10):
                assert await client.recv() == "still here"


@pytest.mark.usefixtures("only_if_told")
async def test_logout_closes_it(world: World, alice: Person) -> None:
    """A terminal ends with the session it was opened by."""
    async with echo() as (endpoint, _):
        path = f"/w/{await world.row(alice, endpoint)}/"
        async with connected(world, alice, path) as client:
            await client.send("x")
            await client.recv()
            await world.get("/api/v1/logout", alice, "POST", Content_Type="application/json")
            await asyncio.wait_for(client.wait_closed(), 20)
            assert client.close_code == 1008


def test_close_frames_are_short() -> None:
    """A control frame holds at most 125 bytes."""
    assert len(close_frame(1012, "codehub restarts")) < 125


def _handshake(world: World, person: Person, path: str) -> bytes:
    return (
        f"GET {path} HTTP/1.1\r\nHost: {world.host}\r\nCookie: {person.cookie}\r\nOrigin: {world.origin}\r\n"
        "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    ).encode()


def _kind(world: World, workspace_id: str) -> ActivityKind | None:
    found = world.proxy.activity.seen.get(workspace_id)  # type: ignore[call-overload]
    return found[1] if found else None


async def _nothing_open(world: World) -> bool:
    return not world.proxy.open
