"""Wakes that the API may not have sent: a wake is not lost when it dies between commit and signal."""

import asyncio
from dataclasses import dataclass, field

import structlog

from adapters.postgres.attention import Attention
from adapters.postgres.database import DatabaseUnavailable
from adapters.telemetry.metrics import SKIPPED, WAKES_RESCUED
from domain.model import WorkspaceId
from workflows.client import TemporalUnavailable, Waker

log = structlog.get_logger()


@dataclass(slots=True)
class Wakes:
    """Waits a moment before it wakes: by then the API's own signal has usually done it."""

    attention: Attention
    waker: Waker
    grace: float = 0.5
    _pending: set[WorkspaceId] = field(default_factory=set, init=False)
    _arrived: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def add(self, workspace_id: WorkspaceId) -> None:
        self._pending.add(workspace_id)
        self._arrived.set()

    async def run(self) -> None:
        while True:
            await self._arrived.wait()
            await asyncio.sleep(self.grace)
            self._arrived.clear()
            batch, self._pending = self._pending, set()
            try:
                unattended = await self.attention.unattended(list(batch))
                await self.waker.wake_all(unattended)
                if unattended:
                    WAKES_RESCUED.inc(len(unattended))
                    log.info("woken_by_listener", workspaces=unattended)
            except (DatabaseUnavailable, TemporalUnavailable) as error:
                SKIPPED.labels("wakes").inc()
                log.warning("wake_postponed", error=str(error), workspaces=len(batch))
                self._pending |= batch
                self._arrived.set()
