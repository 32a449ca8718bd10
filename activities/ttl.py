"""The TTL runner's tick (SPEC 7)."""

from dataclasses import dataclass

import structlog
from temporalio import activity

from adapters.postgres.ttl import Expiry
from adapters.redis.activity import ActivityLog, RedisUnavailable
from domain.model import WorkspaceId
from workflows.client import TemporalUnavailable, Waker
from workflows.messages import EXPIRE, TtlReport

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class TtlRunner:
    expiry: Expiry
    activity_log: ActivityLog
    waker: Waker

    @activity.defn(name=EXPIRE)
    async def tick(self) -> TtlReport:
        report = TtlReport()
        try:
            report.active = await self._copy_activity()
        except RedisUnavailable as error:
            # Activity is unknown: nobody is put to sleep by mistake.
            log.warning("standby_expiry_skipped", error=str(error))
            report.standby_skipped = True
        else:
            slept = await self.expiry.expire_running()
            report.standby = len(slept)
            await self._wake(slept)
        archived = await self.expiry.expire_standby()
        report.archived = len(archived)
        await self._wake(archived)
        return report

    async def _copy_activity(self) -> int:
        """Into the rows first, then out of Redis, and only what was copied: a crash in between copies it again."""
        seen = await self.activity_log.read()
        if seen:
            await self.expiry.touch(seen)
            await self.activity_log.remove(seen)
        return len(seen)

    async def _wake(self, workspaces: list[WorkspaceId]) -> None:
        for workspace_id in workspaces:
            log.info("expired", workspace=workspace_id)
            try:
                await self.waker.wake(workspace_id)
            except TemporalUnavailable as error:
                # The notification of the change, or the sweep, will.
                log.warning("expired_but_not_woken", workspace=workspace_id, error=str(error))
