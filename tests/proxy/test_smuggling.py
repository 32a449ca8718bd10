"""PROMISE 29: whatever is sent, the workspace sees at most one request for it, and never one that nobody authorised."""

import asyncio

import pytest

from tests.proxy.smuggling import CASES
from tests.proxy.world import Person, Workspace, World


def test_there_are_sixty() -> None:
    assert len(CASES) >= 60


@pytest.mark.parametrize("way", ["at once", "byte by byte"])
async def test_at_most_one_request(world: World, alice: Person, ws: Workspace, at: str, way: str) -> None:
    """Each case on a connection of its own, after an honest request on it or as the first."""
    # Answered by the workspace, whatever it is sent, so that nothing waits.
    ws.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
    for name, (case, expected) in CASES.items():
        if way == "byte by byte" and len(case) > 1000:
            continue
        ws.connections.clear()
        raw = case.format(at=at, host=world.host, auth=f"Cookie: {alice.cookie}\r\n").encode("latin-1")
        status = await _status(world, raw, 1 if way == "byte by byte" else len(raw))
        assert ws.received.count(b" /evil ") <= (1 if "GET with a length" in name else 0), name
        assert ws.requests - ws.received.count(b" /evil ") <= 1, name
        if expected is None:
            assert status == 200, name
            assert len(ws.connections) == 1, name
        elif "chunk" in name or "trailer" in name:
            # That a body is bad turns out after its head has passed: the workspace may have answered by then.
            assert status in ({expected, 200} if way == "byte by byte" else {expected}), name
        else:
            assert status == expected, name
            assert not ws.received, name
        assert alice.secret.encode() not in ws.received


async def test_an_answer_is_never_the_next_ones(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """A workspace that answers more than it was asked gets no second chance on that connection."""
    ws.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
    for _ in range(5):
        assert (await world.get(at, alice)).body == b"ok"
    assert len(ws.connections) == 5


async def _status(world: World, raw: bytes, size: int) -> int:
    async with world.connect() as (reader, writer):
        for start in range(0, len(raw), size):
            writer.write(raw[start : start + size])
            if size == 1 and start % 40 == 0:
                await asyncio.sleep(0)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n"), 10)
        return int(head.split(b" ")[1])
