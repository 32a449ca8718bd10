"""PostgreSQL's notifications, turned into wakes: a wake is not lost when the API dies between commit and signal."""

import asyncio
import json
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from adapters.postgres.attention import Attention
from adapters.postgres.database import DatabaseUnavailable, connect
from domain.model import WorkspaceId
from workflows.client import TemporalUnavailable, Waker

log = structlog.get_logger()

WAKE_CHANNEL = "ws_wake"


@dataclass(slots=True)
class WakeListener:
    """Waits a moment before it wakes: by then the API's own signal has usually done it."""

    database_url: str
    attention: Attention
    waker: Waker
    grace: float = 0.5
    _pending: set[WorkspaceId] = field(default_factory=set, init=False)
    _arrived: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    async def run(self) -> None:
        connection = await connect(self.database_url)
        closed = asyncio.Event()
        connection.add_termination_listener(lambda _: closed.set())
        try:
            await connection.add_listener(WAKE_CHANNEL, self._on_notify)
            # What was committed while nobody listened is found by the observer's sweep.
            await _until(closed, self._wake_pending())
        finally:
            with suppress(Exception):
                await connection.close(timeout=1)
        raise DatabaseUnavailable("the listener's connection was closed")

    def _on_notify(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        self._pending.add(WorkspaceId(json.loads(str(payload))["id"]))
        self._arrived.set()

    async def _wake_pending(self) -> None:
        while True:
            await self._arrived.wait()
            await asyncio.sleep(self.grace)
            self._arrived.clear()
            batch, self._pending = self._pending, set()
            try:
                for workspace_id in await self.attention.unattended(list(batch)):
                    await self.waker.wake(workspace_id)
                    log.info("woken_by_listener", workspace=workspace_id)
            except (DatabaseUnavailable, TemporalUnavailable) as error:
                log.warning("wake_postponed", error=str(error), workspaces=len(batch))
                self._pending |= batch
                self._arrived.set()


async def _until(closed: asyncio.Event, work: Coroutine[None, None, None]) -> None:
    tasks = [asyncio.ensure_future(closed.wait()), asyncio.ensure_future(work)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
