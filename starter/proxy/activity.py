"""Activity (SPEC 8): memory, then every 30 s Redis. What Redis does not take goes straight to PostgreSQL, and what that
does not take either is kept and sent again soon (ADR 8)."""

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

import structlog
from redis.asyncio import Redis

from adapters.postgres.database import Database, DatabaseUnavailable
from adapters.postgres.last_access import touch
from adapters.redis.activity import ActivityLog, RedisUnavailable
from adapters.redis.activity_kinds import ActivityKind, KindLog, SeenActivity
from domain.model import WorkspaceId

log = structlog.get_logger()

_REDIS_SECONDS = 1.0
"""Less than domain.ttl.REPORT, so that there is time left for PostgreSQL."""
_RETRY_SECONDS = 1.0
_LAST_REPORT_SECONDS = 3.0

Seen = dict[WorkspaceId, tuple[float, ActivityKind]]


class Activity:
    """What was seen last, of each workspace; since the last report."""

    def __init__(self) -> None:
        self.seen: Seen = {}

    def saw(self, workspace_id: WorkspaceId, kind: ActivityKind) -> None:
        self.seen[workspace_id] = (time.time(), kind)


class ActivityReport:
    def __init__(self, activity: Activity, redis: Redis, database: Database, interval: float) -> None:
        self.interval = interval
        self._activity = activity
        self._times = ActivityLog(redis)
        self._kinds = KindLog(redis)
        self._database = database

    async def run(self) -> None:
        """Until it is cancelled, and then once more."""
        pause = self.interval
        try:
            while True:
                await asyncio.sleep(pause)
                pause = self.interval if await self.send() else _RETRY_SECONDS
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_REPORT_SECONDS):
                    await self.send()
            if self._activity.seen:
                log.warning("activity_lost", workspaces=len(self._activity.seen))

    async def send(self) -> bool:
        """Whether it is where the TTL runner finds it; what is not is kept."""
        batch, self._activity.seen = self._activity.seen, {}
        if not batch:
            return True
        seen = {id_: SeenActivity(datetime.fromtimestamp(at, UTC), kind) for id_, (at, kind) in batch.items()}
        try:
            await self._tell(seen)
        except BaseException as error:
            # Newer ones, seen meanwhile, stay as they are. Recorded twice is the same as once: later wins.
            self._activity.seen = batch | self._activity.seen
            if not isinstance(error, DatabaseUnavailable):
                raise
            log.warning("activity_kept", workspaces=len(batch), error=str(error))
            return False
        return True

    async def _tell(self, seen: Mapping[WorkspaceId, SeenActivity]) -> None:
        """Raises DatabaseUnavailable when nobody took it."""
        times = {workspace_id: one.at for workspace_id, one in seen.items()}
        try:
            async with asyncio.timeout(_REDIS_SECONDS):
                await self._times.record(times)
        except (RedisUnavailable, TimeoutError) as error:
            # Straight to where the runner would copy it: it must not look idle to a runner that reaches Redis before
            # we do.
            log.warning("activity_past_redis", workspaces=len(seen), error=str(error))
            await touch(self._database, times)
            return
        try:
            await self._kinds.record(seen)
        except RedisUnavailable as error:
            # Only for `explain`: the next activity tells again.
            log.warning("activity_kind_lost", workspaces=len(seen), error=str(error))
