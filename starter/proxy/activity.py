"""Activity (SPEC 8): memory, then every 30 s Redis. What Redis could not take is kept and sent with the next report."""

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, cast

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from adapters.redis.activity import ActivityLog, RedisUnavailable
from domain.model import WorkspaceId

log = structlog.get_logger()

KIND_KEY = "codehub:activity:kind"
_KIND_SECONDS = 30 * 86400
_LAST_REPORT_SECONDS = 2.0


class ActivityKind(StrEnum):
    HTTP = "http"
    TO_WORKSPACE = "ws-in"
    FROM_WORKSPACE = "ws-out"


Seen = dict[WorkspaceId, tuple[float, ActivityKind]]


class Activity:
    """What was seen last, of each workspace; since the last report."""

    def __init__(self) -> None:
        self.seen: Seen = {}

    def saw(self, workspace_id: WorkspaceId, kind: ActivityKind) -> None:
        self.seen[workspace_id] = (time.time(), kind)


@dataclass(frozen=True, slots=True)
class KindLog:
    """Of what kind a workspace's last activity was: a key each, which goes by itself."""

    redis: Redis
    key: str = KIND_KEY

    async def record(self, kinds: dict[WorkspaceId, ActivityKind]) -> None:
        try:
            async with self.redis.pipeline(transaction=False) as pipeline:
                for workspace_id, kind in kinds.items():
                    pipeline.set(f"{self.key}:{workspace_id}", kind.value, ex=_KIND_SECONDS)
                await pipeline.execute()
        except (RedisError, OSError) as error:
            raise RedisUnavailable(f"Redis did not answer: {error}") from error

    async def last(self, workspace_id: WorkspaceId) -> ActivityKind | None:
        try:
            found = cast("Any", await self.redis.get(f"{self.key}:{workspace_id}"))
        except (RedisError, OSError) as error:
            raise RedisUnavailable(f"Redis did not answer: {error}") from error
        text = found.decode() if isinstance(found, bytes) else found
        return ActivityKind(text) if text in set(ActivityKind) else None


class ActivityReport:
    def __init__(self, activity: Activity, redis: Redis, interval: float) -> None:
        self.interval = interval
        self._activity = activity
        self._times = ActivityLog(redis)
        self._kinds = KindLog(redis)

    async def run(self) -> None:
        """Until it is cancelled, and then once more."""
        try:
            while True:
                await asyncio.sleep(self.interval)
                await self.send()
        finally:
            try:
                async with asyncio.timeout(_LAST_REPORT_SECONDS):
                    await self.send()
            except TimeoutError:
                log.warning("activity_lost", workspaces=len(self._activity.seen))

    async def send(self) -> None:
        batch, self._activity.seen = self._activity.seen, {}
        if not batch:
            return
        try:
            await self._times.record({id_: datetime.fromtimestamp(at, UTC) for id_, (at, _) in batch.items()})
        except BaseException as error:
            # Newer ones, seen meanwhile, stay as they are. Recorded twice is the same as once: later wins.
            self._activity.seen = batch | self._activity.seen
            if not isinstance(error, RedisUnavailable):
                raise
            log.warning("activity_kept", workspaces=len(batch), error=str(error))
            return
        try:
            await self._kinds.record({id_: kind for id_, (_, kind) in batch.items()})
        except RedisUnavailable as error:
            # Only for `explain`: the next activity tells again.
            log.warning("activity_kind_lost", workspaces=len(batch), error=str(error))
