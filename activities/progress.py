"""Progress of a transfer as live events: at most one a second."""

import asyncio
from dataclasses import asdict, dataclass, field
from time import monotonic

import structlog

from activities.attempt import Attempt
from adapters.redis.activity import RedisUnavailable
from adapters.redis.events import Event, EventBus, EventKind
from adapters.tasks import end
from domain.model import OperationId
from domain.progress import Moved

log = structlog.get_logger()

_FORGET_SECONDS = 7200.0


@dataclass(slots=True)
class _Told:
    """What was told of an attempt, and what is to be told next."""

    newest: Moved
    begun: float = field(default_factory=monotonic)
    at: float = float("-inf")
    later: "asyncio.Task[None] | None" = None


@dataclass(slots=True)
class ProgressEvents:
    bus: EventBus
    interval: float = 1.0
    _told: dict[tuple[OperationId, int], _Told] = field(default_factory=dict, init=False)

    async def publish(self, attempt: Attempt, moved: Moved) -> None:
        """What comes too soon waits, and only the newest of it is told: so the last one always is."""
        told = self._of(attempt, moved)
        if told.later is not None and not told.later.done():
            return
        wait = told.at + self.interval - monotonic()
        if wait <= 0:
            await self._tell(attempt, told)
        else:
            told.later = asyncio.create_task(self._tell_later(wait, attempt, told))

    async def close(self) -> None:
        """What still waits is not told: nobody is left to tell it."""
        await end([told.later for told in self._told.values() if told.later is not None])

    def _of(self, attempt: Attempt, moved: Moved) -> _Told:
        key = (attempt.op_id, attempt.number)
        if key in self._told:
            self._told[key].newest = moved
        else:
            now = monotonic()
            self._told = {other: told for other, told in self._told.items() if now - told.begun < _FORGET_SECONDS}
            self._told[key] = _Told(moved)
        return self._told[key]

    async def _tell_later(self, wait: float, attempt: Attempt, told: _Told) -> None:
        await asyncio.sleep(wait)
        await self._tell(attempt, told)

    async def _tell(self, attempt: Attempt, told: _Told) -> None:
        """A lost event costs a moment of a progress bar, nothing else."""
        told.at = monotonic()
        details = {"operation": attempt.workspace.operation, **asdict(told.newest)}
        event = Event(EventKind.PROGRESS, attempt.workspace.owner_user_id, attempt.workspace.id, details)
        try:
            await self.bus.publish([event])
        except RedisUnavailable as error:
            log.debug("progress_not_published", error=str(error))
