"""The TTL runner's tick (SPEC 7)."""

from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog
from temporalio import activity

from adapters.postgres.ttl import Expiry
from adapters.redis.activity import ActivityLog, RedisUnavailable
from adapters.telemetry.metrics import TTL_EXPIRIES, TTL_SKIPPED, TTL_TICK
from domain.model import DesiredState, WorkspaceId
from workflows.messages import EXPIRE, ExpireInput, TtlReport

log = structlog.get_logger()

_NAMED = 20
"""Of those that expire, in the log; the audit log has all of them."""


@dataclass(frozen=True, slots=True)
class TtlRunner:
    expiry: Expiry
    activity_log: ActivityLog

    @activity.defn(name=EXPIRE)
    async def tick(self, request: ExpireInput | None = None) -> TtlReport:
        report = TtlReport(unknown_at=request.unknown_at if request else None)
        # However long the steps take: what is judged below is how things were before Redis was asked.
        asked_at = await self.expiry.now()
        try:
            report.active = await self._copy_activity()
        except RedisUnavailable as error:
            log.warning("activity_unknown", error=str(error))
            report.unknown_at = datetime.now(UTC)
        if self._is_known(report.unknown_at, asked_at):
            report.unknown_at = None
            report.standby = await self._expire(DesiredState.STANDBY, self.expiry.expire_running(asked_at))
        else:
            # Nobody is put to sleep by mistake.
            report.standby_skipped = True
            TTL_SKIPPED.inc()
        report.archived = await self._expire(DesiredState.ARCHIVED, self.expiry.expire_standby())
        TTL_TICK.set_to_current_time()
        return report

    def _is_known(self, unknown_at: datetime | None, asked_at: datetime) -> bool:
        """Who was active: also what was on its way when it was unknown had arrived by then."""
        return unknown_at is None or asked_at - unknown_at >= self.expiry.defaults.lag

    async def _copy_activity(self) -> int:
        """Into the rows first, then out of Redis, and only what was copied: a crash in between copies it again."""
        seen = await self.activity_log.read()
        if seen:
            await self.expiry.touch(seen)
            await self.activity_log.remove(seen)
        return len(seen)

    async def _expire(self, desired: DesiredState, expiring: Awaitable[list[WorkspaceId]]) -> int:
        """Whoever hears of the change wakes them (coordinator.wakes): a tick that did so, too, would do it twice."""
        expired = await expiring
        TTL_EXPIRIES.labels(desired).inc(len(expired))
        if expired:
            log.info("expired", desired_state=desired, count=len(expired), workspaces=expired[:_NAMED])
        return len(expired)
