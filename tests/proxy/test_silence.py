"""A workspace that takes a request and says nothing: paused, hung, or busy with something long."""

import asyncio

import pytest

from tests.proxy.world import Person, Workspace, World, comes

PATIENCE = 3.0
"""Seconds: also of a machine that stands still for a moment, when a workspace has long answered."""


@pytest.fixture(autouse=True)
def impatient(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world.proxy, "page_timeout", PATIENCE)


async def test_a_person_is_told(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """That the workspace does not answer, by the page that tries again; also on a connection that was in use before."""
    assert (await world.open(at, alice)).status == 200
    ws.answer = b""
    for _ in range(2):
        answer = await world.open(at, alice)
        assert answer.status == 502
        assert b'data-page="unreachable"' in answer.body
    assert ws.requests == 3
    ws.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    assert (await world.open(at, alice)).status == 200


async def test_a_program_may_wait(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """A long poll is answered when it is answered; a page that has begun may take its time to end."""
    go_on = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.read(65536)
        if b"/download" in head:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no")
        if b"/silent" not in head:
            await go_on.wait()
            writer.write(b"k" if b"/download" in head else ws.answer)
        await reader.read(1)

    ws.handler = handler
    waiting = [
        asyncio.ensure_future(world.get(f"{at}poll", alice)),
        asyncio.ensure_future(world.get(f"{at}poll", alice, "POST", b"{}", Origin=world.origin)),
        asyncio.ensure_future(world.open(f"{at}download", alice)),
    ]
    await comes(lambda: len(ws.connections) == len(waiting))
    # Asked for last and told first: by then, the others have waited for longer.
    assert (await world.open(f"{at}silent", alice)).status == 502
    assert not any(one.done() for one in waiting)
    go_on.set()
    assert [((await one).status, (await one).body) for one in waiting] == [(200, b"ok")] * len(waiting)
