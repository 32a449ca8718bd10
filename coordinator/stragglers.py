"""Workspaces that should be on their way, and are not: whoever should have woken them did not."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic

import structlog

from adapters.postgres.attention import Attention
from adapters.postgres.database import DatabaseUnavailable
from adapters.telemetry.metrics import DRIFT, SKIPPED
from domain.model import WorkspaceId
from domain.plan import DEFAULT_TIMEOUTS, Timeouts
from workflows.client import TemporalUnavailable, Waker

log = structlog.get_logger()


_LONGEST = 900.0


@dataclass(frozen=True, slots=True)
class _Told:
    like: str
    """What it was like when it was woken."""
    again_at: float
    pause: float


@dataclass(slots=True)
class Stragglers:
    """Of all nodes; it asks the rows alone."""

    attention: Attention
    waker: Waker
    interval: float = 15.0
    patience: timedelta = timedelta(seconds=5)
    timeouts: Timeouts = field(default_factory=lambda: DEFAULT_TIMEOUTS)
    again: float = 60.0
    """Seconds, doubled each time. Woken once is enough as a rule, most of them only wait for their turn: thousands that
    do must not get a signal each at every look."""
    clock: Callable[[], float] = monotonic
    _told: dict[WorkspaceId, _Told] = field(default_factory=dict, init=False)

    async def run(self) -> None:
        while True:
            try:
                await self.look()
            except (DatabaseUnavailable, TemporalUnavailable) as error:
                SKIPPED.labels("stragglers").inc()
                log.warning("stragglers_not_woken", error=str(error))
            await asyncio.sleep(self.interval)

    async def look(self) -> list[WorkspaceId]:
        timeouts = {operation.value: limit for operation, limit in self.timeouts.items()}
        waiting = await self.attention.stuck(self.patience, timeouts) | await self.attention.not_begun(self.patience)
        woken = [workspace_id for workspace_id, like in waiting.items() if self._is_news(workspace_id, like)]
        await self.waker.wake_all(woken)
        DRIFT.labels("straggler").inc(len(woken))
        told = {workspace_id: self._telling(workspace_id, waiting[workspace_id]) for workspace_id in woken}
        self._told = {known: at for known, at in self._told.items() if known in waiting} | told
        for workspace_id in woken:
            log.info("straggler_woken", workspace=workspace_id)
        return woken

    def _is_news(self, workspace_id: WorkspaceId, like: str) -> bool:
        told = self._told.get(workspace_id)
        return told is None or told.like != like or self.clock() > told.again_at

    def _telling(self, workspace_id: WorkspaceId, like: str) -> _Told:
        told = self._told.get(workspace_id)
        pause = self.again if told is None or told.like != like else min(2 * told.pause, _LONGEST)
        return _Told(like, self.clock() + pause, pause)
