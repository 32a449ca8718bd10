"""Progress of a transfer as live events: at most one a second, with rate and time left."""

from dataclasses import dataclass, field
from time import monotonic

import structlog

from activities.attempt import Attempt
from adapters.redis.activity import RedisUnavailable
from adapters.redis.events import Event, EventBus, EventKind
from domain.model import OperationId

log = structlog.get_logger()


@dataclass(slots=True)
class ProgressEvents:
    bus: EventBus
    _begun: dict[tuple[OperationId, int], float] = field(default_factory=dict, init=False)

    async def publish(self, attempt: Attempt, done: int, total: int | None) -> None:
        """A lost event costs a moment of a progress bar, nothing else."""
        key = (attempt.op_id, attempt.number)
        if key not in self._begun:
            self._begun = {other: since for other, since in self._begun.items() if monotonic() - since < 7200}
            self._begun[key] = monotonic()
        elapsed = monotonic() - self._begun[key]
        rate = done / elapsed if elapsed > 0.5 else None
        left = (total - done) / rate if rate and total is not None else None
        details = {
            "operation": attempt.workspace.operation,
            "bytes_done": done,
            "bytes_total": total,
            "bytes_per_second": round(rate) if rate is not None else None,
            "eta_seconds": round(max(0.0, left), 1) if left is not None else None,
        }
        event = Event(EventKind.PROGRESS, attempt.workspace.owner_user_id, attempt.workspace.id, details)
        try:
            await self.bus.publish([event])
        except RedisUnavailable as error:
            log.debug("progress_not_published", error=str(error))
