"""Clients that take their time: they get less than others, never what is older, and nobody waits for them (SPEC 9)."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest

from adapters.redis.events import Event, EventBus, EventKind
from domain.model import WorkspaceId
from starter.api import events
from starter.api.authentication import Authenticator
from starter.api.events import EventStream
from starter.api.hub import Hub, Screen, Shown
from starter.api.logins import hash_secret
from starter.api.standing import Standing
from tests.api.world import Api, Person, serving, until
from tests.events.listening import heard, listening
from tests.events.stream import watching


@dataclass
class Slow:
    """A client that reads when the test lets it."""

    screen: Screen
    reads: asyncio.Event = field(default_factory=asyncio.Event)
    told: list[tuple[str, Any]] = field(default_factory=list)
    waiting: bool = False

    async def send(self, message: Any) -> None:
        self.waiting = True
        await self.reads.wait()
        self.waiting = False
        name, _, data = message.get("body", b"").decode().partition("\ndata: ")
        if data:
            self.told.append((name.rpartition("event: ")[2], json.loads(data)))

    async def receive(self) -> Any:
        return await asyncio.Future[Any]()

    async def until_told(self, name: str, **fields: Any) -> None:
        async def told() -> bool:
            return any(kind == name and body.items() >= fields.items() for kind, body in self.told)

        await until(told, 20)

    async def until_waiting(self) -> None:
        async def waits() -> bool:
            return self.waiting

        await until(waits, 20)


@pytest.fixture
async def api(database_url: str, bus: EventBus) -> AsyncIterator[Api]:
    """Where nobody tells of changes but the test."""
    async with serving(database_url, bus=bus) as api:
        await heard(api)
        yield api


@pytest.fixture
def hub(api: Api) -> Hub:
    assert api.deps.hub
    return api.deps.hub


@asynccontextmanager
async def _slow(api: Api, hub: Hub, person: Person) -> AsyncIterator[Slow]:
    slow = Slow(hub.open(person.id))
    slow.reads.set()
    authenticator = Authenticator(api.deps.sessions, api.deps.tokens)
    identity = await api.deps.sessions.find(hash_secret(person.secret))
    assert identity
    standing = Standing(identity, authenticator.still, slow.screen.login_changed)
    stream = EventStream(hub, api.deps.catalog, slow.screen, standing, None, 3600)
    task = asyncio.create_task(stream({}, slow.receive, slow.send))
    try:
        yield slow
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_what_waited_is_not_sent_after_what_is_newer(api: Api, hub: Hub) -> None:
    """A change that nobody was told of is found by looking at everything: then the one before it is history."""
    alice = await api.person("alice")
    workspace = WorkspaceId(await alice.workspace())
    other = WorkspaceId(await alice.workspace("other"))
    changed = Event(EventKind.UPDATED, alice.id, workspace)
    async with _slow(api, hub, alice) as slow:
        await slow.until_told("workspace_updated", id=workspace)
        slow.reads.clear()
        await api.row(other, memo="first")
        await hub._handle(Event(EventKind.UPDATED, alice.id, other))
        await slow.until_waiting()
        await api.row(workspace, memo="one")
        await hub._handle(changed)
        await api.row(workspace, memo="two")
        slow.screen.refresh()
        slow.reads.set()
        await slow.until_told("workspace_updated", id=workspace, memo="two")
        await api.row(other, memo="last")
        await hub._handle(Event(EventKind.UPDATED, alice.id, other))
        await slow.until_told("workspace_updated", id=other, memo="last")
        memos = [body["memo"] for _, body in slow.told if body.get("id") == workspace]
        assert memos == ["", "two"]


@pytest.mark.parametrize("newer", ["changed", "deleted"])
async def test_what_was_read_before_and_queued_after_is_not_sent(api: Api, hub: Hub, newer: str) -> None:
    """The hub reads a row, and has it for the client only when the client has seen what came next."""
    alice = await api.person("alice")
    workspace = WorkspaceId(await alice.workspace())
    other = WorkspaceId(await alice.workspace("other"))
    async with _slow(api, hub, alice) as slow:
        await slow.until_told("workspace_updated", id=workspace)
        await api.row(workspace, memo="one")
        read = Shown(await api.deps.catalog.get(workspace, alice.id))
        if newer == "changed":
            await api.row(workspace, memo="two")
            slow.screen.refresh()
            await slow.until_told("workspace_updated", id=workspace, memo="two")
        else:
            await alice("DELETE", f"/api/v1/workspaces/{workspace}")
            await api.row(workspace, phase="DELETED")
            slow.screen.refresh()
            await slow.until_told("workspace_deleted", id=workspace)
        slow.screen.updated[workspace] = read
        await api.row(other, memo="last")
        await hub._handle(Event(EventKind.UPDATED, alice.id, other))
        await slow.until_told("workspace_updated", id=other, memo="last")
        assert not [body for _, body in slow.told if body.get("memo") == "one"]


async def test_a_transaction_that_waited_for_another_is_the_newer_one(api: Api) -> None:
    """Though it began before it."""
    alice = await api.person("alice")
    workspace = await alice.workspace()
    patch = "UPDATE workspaces SET memo = $2 WHERE id = $1 RETURNING updated_at"
    async with api.deps.database.transaction() as early:
        await early.fetchval("SELECT now()")
        first = await api.deps.database.fetchval(patch, workspace, "first")
        second = await early.fetchval(patch, workspace, "second")
        third = await early.fetchval(patch, workspace, "third")
    assert first < second < third


async def test_a_client_that_does_not_read_is_let_go(
    database_url: str, bus: EventBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the one beside it gets its events."""
    monkeypatch.setattr(events, "_SLOW_SECONDS", 0.5)
    async with serving(database_url, bus=bus) as api, listening(database_url, api, bus):
        hub = api.deps.hub
        assert hub
        alice = await api.person("alice")
        workspace = await alice.workspace()
        async with watching(alice) as reading:
            await reading.until(workspace)
            with _deaf(alice) as deaf:

                async def both() -> bool:
                    return hub.clients == 2

                await until(both, 20)
                number = 0
                async with asyncio.timeout(150):
                    while hub.clients == 2:
                        number += 1
                        memo = f"{number} " + "ü" * 9000
                        await alice("PATCH", f"/api/v1/workspaces/{workspace}", {"memo": memo})
                        await reading.until(workspace, memo=memo)
                assert hub.clients == 1
                await _closed(deaf)
            await alice("PATCH", f"/api/v1/workspaces/{workspace}", {"memo": "after"})
            await reading.until(workspace, memo="after")


def _deaf(person: Person) -> socket.socket:
    """A client with as little room as there can be, which asks and then does not read."""
    url = urlsplit(person.api.url)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    client.connect((url.hostname, url.port))
    request = f"GET /api/v1/events HTTP/1.1\r\nHost: {url.netloc}\r\nCookie: session={person.secret}\r\n\r\n"
    client.sendall(request.encode())
    return client


async def _closed(client: socket.socket) -> None:
    """What was on its way is followed by the end."""
    client.setblocking(False)
    async with asyncio.timeout(20):
        try:
            while await asyncio.get_running_loop().sock_recv(client, 65536):
                pass
        except ConnectionError:
            pass
