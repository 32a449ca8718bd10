"""Events tell the directory what changed: the Redis channels of SPEC 9, of all users."""

import asyncio
from dataclasses import dataclass

import structlog

from adapters.redis.activity import RedisUnavailable
from adapters.redis.events import Event, EventBus, EventKind
from starter.proxy.directory import Directory

log = structlog.get_logger()

_RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Invalidation:
    bus: EventBus
    directory: Directory

    async def run(self) -> None:
        """Until it is cancelled. While Redis is away, the directory's ages do."""
        while True:
            try:
                async with self.bus.subscribed() as events:
                    # What was published while nobody listened is unknown.
                    self.directory.invalidate_all()
                    async for event in events:
                        self._changed(event)
            except RedisUnavailable as error:
                log.warning("invalidation_interrupted", error=str(error))
            except Exception:
                log.exception("invalidation_failed")
            await asyncio.sleep(_RETRY_SECONDS)

    def _changed(self, event: Event) -> None:
        match event.kind:
            case EventKind.UPDATED | EventKind.DELETED:
                self.directory.invalidate(event.workspace_id)
            case EventKind.REFRESH:
                self.directory.invalidate_all()
            case EventKind.PROGRESS:
                # Nothing that a request depends on.
                return
