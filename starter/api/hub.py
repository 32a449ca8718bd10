"""Live events of one API process: one subscription to Redis, one loading of a row, many screens.

A screen's queue holds the newest state of each workspace, not every change: a slow one gets fewer events, never old
ones, and costs the others nothing.
"""

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import structlog

from adapters.postgres.catalog import Catalog, Entry
from adapters.postgres.database import DatabaseUnavailable
from adapters.postgres.desired_state import Refused
from adapters.redis.activity import RedisUnavailable
from adapters.redis.events import EVERYONE, Event, EventBus, EventKind
from adapters.telemetry.metrics import SKIPPED
from domain.model import UserId, WorkspaceId

log = structlog.get_logger()

_RETRY = 1.0


@dataclass(eq=False)
class Shown:
    """A workspace as it is shown: written out once, however many look at it."""

    entry: Entry
    body: str | None = None
    """By the first screen that needs it."""


@dataclass(eq=False, slots=True)
class Screen:
    """One connected client. Progress is told apart from states: it may be left out, they may not."""

    user_id: UserId
    updated: dict[WorkspaceId, Shown | None] = field(default_factory=dict)
    """The newest state of what changed; None where it is deleted."""
    progress: dict[WorkspaceId, dict[str, Any]] = field(default_factory=dict)
    stale: bool = True
    """Everything has to be looked at: at the beginning, and after something may have been missed."""
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    login_changed: asyncio.Event = field(default_factory=asyncio.Event)
    """It may have ended: who has it asks (see standing.py)."""

    def refresh(self) -> None:
        self.stale = True
        self.arrived.set()


@dataclass(slots=True)
class Hub:
    bus: EventBus
    catalog: Catalog
    closing: bool = field(default=False, init=False)
    _screens: dict[UserId, set[Screen]] = field(default_factory=lambda: defaultdict(set), init=False)

    def open(self, user_id: UserId) -> Screen:
        screen = Screen(user_id)
        self._screens[user_id].add(screen)
        return screen

    def close(self, screen: Screen) -> None:
        self._screens[screen.user_id].discard(screen)
        if not self._screens[screen.user_id]:
            del self._screens[screen.user_id]

    def shut(self) -> None:
        """The process ends: screens let go, and come back to another one."""
        self.closing = True
        self._refresh_all()

    def logins_changed(self) -> None:
        """Of somebody, here or while nobody listened: each screen asks for its own."""
        for screens in self._screens.values():
            for screen in screens:
                screen.login_changed.set()

    @property
    def clients(self) -> int:
        return sum(len(screens) for screens in self._screens.values())

    async def run(self) -> None:
        """For the life of the process: a Redis that went away comes back by itself, and then screens look again."""
        while True:
            try:
                async with self.bus.subscribed() as events:
                    self._refresh_all()
                    async for event in events:
                        await self._handle(event)
            except RedisUnavailable as error:
                SKIPPED.labels("live_events").inc()
                log.warning("live_events_interrupted", error=str(error))
            except Exception:
                SKIPPED.labels("live_events").inc()
                log.exception("live_events_failed")
            await asyncio.sleep(_RETRY)

    async def _handle(self, event: Event) -> None:
        if event.user_id == EVERYONE:
            self._refresh_all()
            return
        screens = self._screens.get(event.user_id)
        if not screens:
            return
        match event.kind:
            case EventKind.UPDATED | EventKind.DELETED:
                await self._load(event, screens)
            case EventKind.PROGRESS:
                for screen in screens:
                    screen.progress[event.workspace_id] = event.details or {}
                    screen.arrived.set()
            case EventKind.REFRESH:
                for screen in screens:
                    screen.refresh()
            case EventKind.LOGINS:
                for screen in screens:
                    screen.login_changed.set()

    async def _load(self, event: Event, screens: set[Screen]) -> None:
        try:
            entry = await self._find(event)
        except DatabaseUnavailable:
            for screen in list(screens):
                screen.refresh()
            return
        shown = Shown(entry) if entry else None
        for screen in list(screens):
            screen.updated[event.workspace_id] = shown
            screen.arrived.set()

    async def _find(self, event: Event) -> Entry | None:
        try:
            return await self.catalog.get(event.workspace_id, event.user_id)
        except Refused:
            return None

    def _refresh_all(self) -> None:
        self.logins_changed()
        for screens in self._screens.values():
            for screen in screens:
                screen.refresh()
