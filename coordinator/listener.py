"""PostgreSQL's notifications: who has to be woken, whose screens have to change (SPEC 9), whose logins have ended."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import structlog

from adapters.postgres.database import Connection, DatabaseUnavailable, connect
from adapters.postgres.lock import keep_alive
from adapters.redis.events import EVERYONE, NO_WORKSPACE, Event, EventKind
from adapters.tasks import end
from coordinator.publisher import Publisher
from coordinator.wakes import Wakes
from domain.audit import ActorKind
from domain.model import UserId, WorkspaceId

log = structlog.get_logger()

WAKE_CHANNEL = "ws_wake"
EVENTS = {"ws_sse": EventKind.UPDATED, "ws_deleted": EventKind.DELETED, "logins_changed": EventKind.LOGINS}
_SPEAK_INTERVAL = 2.0


@dataclass(slots=True)
class EventListener:
    database_url: str
    wakes: Wakes
    publisher: Publisher

    async def run(self) -> None:
        connection = await connect(self.database_url)
        closed = asyncio.Event()
        connection.add_termination_listener(lambda _: closed.set())
        try:
            await connection.add_listener(WAKE_CHANNEL, self._on_wake)
            for channel, kind in EVENTS.items():
                await connection.add_listener(channel, self._on(kind))
            # What changed while nobody listened: screens look again, and the sweep finds who was not woken.
            self.publisher.add(Event(EventKind.REFRESH, EVERYONE))
            await _until(closed, self.wakes.run, self.publisher.run, partial(_speak, connection))
        finally:
            with suppress(Exception):
                await connection.close(timeout=1)
        raise DatabaseUnavailable("the listener's connection was closed, or came to nothing")

    def _on_wake(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        body = json.loads(str(payload))
        self.wakes.add(WorkspaceId(body["id"]), ours=body.get("by") == ActorKind.TTL)

    def _on(self, kind: EventKind) -> Callable[[object, int, str, object], None]:
        def notify(_connection: object, _pid: int, _channel: str, payload: object) -> None:
            body = json.loads(str(payload))
            self.publisher.add(Event(kind, UserId(body["user_id"]), WorkspaceId(body.get("id", NO_WORKSPACE))))

        return notify


async def _speak(connection: Connection) -> None:
    """Until nobody answers. A connection on which nothing is said may be dropped on the way, and neither end is told:
    it would hear nothing for ever."""
    with suppress(DatabaseUnavailable):
        while True:
            await asyncio.sleep(_SPEAK_INTERVAL)
            await keep_alive(connection)


async def _until(closed: asyncio.Event, *work: Callable[[], Awaitable[None]]) -> None:
    tasks = [asyncio.ensure_future(closed.wait()), *(asyncio.ensure_future(one()) for one in work)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end(tasks)
        for task in tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                log.error("listener_part_failed", error=repr(error))
