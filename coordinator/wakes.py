"""Wakes by notification: those of what TTL changed, and those that the API may not have sent, as when it dies between
commit and signal."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic

import structlog

from adapters.postgres.attention import Attention
from adapters.postgres.database import DatabaseUnavailable
from adapters.telemetry.metrics import SKIPPED, WAKES_RESCUED
from adapters.telemetry.tracing import span
from domain.model import WorkspaceId
from workflows.client import TemporalUnavailable, Waker

log = structlog.get_logger()

_NAMED = 20
"""Of those that are woken, in the log."""
_LONGEST = 10.0
"""Seconds that a wake which was lost among many others waits."""


@dataclass(slots=True)
class Wakes:
    """What nobody else wakes is woken at once. With the rest it waits a moment: by then the API's own signal has
    usually done it. The more are asked for together, the longer: they have had their signals, and wait for their turn.
    A second one each would make them wait twice as long."""

    attention: Attention
    waker: Waker
    grace: float = 0.5
    turn: float = 0.05
    """Seconds that each of many takes."""
    clock: Callable[[], float] = monotonic
    _ours: set[WorkspaceId] = field(default_factory=set, init=False)
    _others: set[WorkspaceId] = field(default_factory=set, init=False)
    _arrived: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def add(self, workspace_id: WorkspaceId, *, ours: bool = False) -> None:
        """`ours`: nobody else wakes it."""
        (self._ours if ours else self._others).add(workspace_id)
        self._arrived.set()

    async def run(self) -> None:
        since: float | None = None
        while True:
            await self._something_to_do(since)
            if self._ours:
                await self._wake_ours()
            if since is not None and self.clock() >= since + self._patience():
                since = None
                await self._rescue()
            if since is None and self._others:
                since = self.clock()

    def _patience(self) -> float:
        return min(self.grace + self.turn * len(self._others), _LONGEST)

    async def _something_to_do(self, since: float | None) -> None:
        left = None if since is None else max(since + self._patience() - self.clock(), 0)
        if self._ours:
            # Temporal did not take them.
            left = self.grace if left is None else min(left, self.grace)
        with suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self._arrived.wait()
        self._arrived.clear()

    async def _rescue(self) -> None:
        others, self._others = self._others, set()
        rescued = await self._woken(others)
        if rescued is None:
            self._others |= others
        WAKES_RESCUED.inc(rescued or 0)

    async def _wake_ours(self) -> None:
        ours, self._ours = self._ours, set()
        # A trace of its own: what follows is the doing of nobody who asked for something a moment ago.
        with span("wake what expired"):
            if await self._woken(ours) is None:
                self._ours |= ours

    async def _woken(self, batch: set[WorkspaceId]) -> int | None:
        """How many of them had not been woken yet; None when it has to be tried again."""
        if not batch:
            return 0
        try:
            unattended = await self.attention.unattended(list(batch))
            await self.waker.wake_all(unattended)
        except (DatabaseUnavailable, TemporalUnavailable) as error:
            SKIPPED.labels("wakes").inc()
            log.warning("wake_postponed", error=str(error), workspaces=len(batch))
            return None
        if unattended:
            log.info("woken_by_listener", count=len(unattended), workspaces=unattended[:_NAMED])
        return len(unattended)
