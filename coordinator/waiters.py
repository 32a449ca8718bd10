"""Workspaces that found no place for their home: they sleep until there is one, and the leader wakes them then."""

import asyncio
from dataclasses import dataclass, field
from time import monotonic

import structlog

from adapters.postgres.database import DatabaseUnavailable
from adapters.postgres.placements import Placements, Waiting
from adapters.telemetry.metrics import SKIPPED
from domain.model import WorkspaceId
from domain.placement import Place
from workflows.client import TemporalUnavailable, Waker

log = structlog.get_logger()

_MOST = 500
"""Woken at a time, where a node has no limit."""


@dataclass(slots=True)
class Waiters:
    """Asks for who waits, by index; while nobody does, that is all."""

    placements: Placements
    waker: Waker
    interval: float = 3.0
    again: float = 15.0
    """Seconds. Whoever was woken takes its place in a moment: until then it is counted, and not woken once more."""
    _told: dict[WorkspaceId, float] = field(default_factory=dict, init=False)

    async def run(self) -> None:
        while True:
            try:
                await self.look()
            except (DatabaseUnavailable, TemporalUnavailable) as error:
                SKIPPED.labels("waiters").inc()
                log.warning("waiters_not_woken", error=str(error))
            await asyncio.sleep(self.interval)

    async def look(self) -> list[WorkspaceId]:
        """As many as there are places, whoever has waited for longest first; returns who was woken."""
        now = monotonic()
        self._told = {told: at for told, at in self._told.items() if now - at < self.again}
        waiting = await self.placements.waiting(_MOST)
        if not waiting:
            return []
        served = [one.id for one in _served(waiting, await self.placements.places())]
        woken = [workspace_id for workspace_id in served if workspace_id not in self._told]
        await self.waker.wake_all(woken)
        self._told |= dict.fromkeys(woken, now)
        for workspace_id in woken:
            log.info("woken_for_a_place", workspace=workspace_id)
        return woken


def _served(waiting: list[Waiting], places: list[Place]) -> list[Waiting]:
    opened = [place for place in places if place.open]
    names, room = {place.name for place in opened}, sum(place.room for place in opened)
    kept = [one for one in waiting if one.kept in names]
    others = [one for one in waiting if one.kept not in names]
    return kept + others[: int(min(room, len(others)))]
