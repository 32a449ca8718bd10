"""Events tell what is to be forgotten, of workspaces and of logins: the Redis channels of SPEC 9, of all users."""

import asyncio
from collections.abc import Callable
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
    logins_changed: Callable[[], None]

    async def run(self) -> None:
        """Until it is cancelled. While Redis is away, the directory's ages do."""
        while True:
            try:
                async with self.bus.subscribed() as events:
                    # What was published while nobody listened is unknown.
                    self._missed()
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
            case EventKind.LOGINS:
                self.logins_changed()
            case EventKind.REFRESH:
                self._missed()
            case EventKind.PROGRESS:
                # Nothing that a request depends on.
                return

    def _missed(self) -> None:
        self.directory.invalidate_all()
        self.logins_changed()
