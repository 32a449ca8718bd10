"""Notifications on their way to Redis. They say "look at this", so several of one become one."""

import asyncio
from dataclasses import dataclass, field

import structlog

from adapters.redis.activity import RedisUnavailable
from adapters.redis.events import EVERYONE, Event, EventBus, EventKind
from adapters.telemetry.metrics import SKIPPED
from domain.model import UserId, WorkspaceId

log = structlog.get_logger()

_RETRY = 1.0


@dataclass(slots=True)
class Publisher:
    bus: EventBus
    _pending: dict[tuple[EventKind, UserId, WorkspaceId], Event] = field(default_factory=dict, init=False)
    _arrived: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def add(self, event: Event) -> None:
        self._pending[event.kind, event.user_id, event.workspace_id] = event
        self._arrived.set()

    async def run(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            batch, self._pending = self._pending, {}
            try:
                await self.bus.publish(list(batch.values()))
            except RedisUnavailable as error:
                # Subscribers were cut off too: once they are back, they look at everything.
                SKIPPED.labels("publisher").inc()
                log.warning("events_postponed", error=str(error), events=len(batch))
                self._pending = {}
                self.add(Event(EventKind.REFRESH, EVERYONE))
                await asyncio.sleep(_RETRY)
