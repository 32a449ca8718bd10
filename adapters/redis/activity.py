"""The ZSET in which the proxies leave when each workspace was last used."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import Any, cast

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from domain.model import WorkspaceId

log = structlog.get_logger()

KEY = "codehub:activity"

# Removes only what was copied: a later activity has another score and stays.
_REMOVE = """
local removed = 0
for i = 1, #ARGV, 2 do
    local score = redis.call('ZSCORE', KEYS[1], ARGV[i])
    if score and tonumber(score) <= tonumber(ARGV[i + 1]) then
        removed = removed + redis.call('ZREM', KEYS[1], ARGV[i])
    end
end
return removed
"""
_BATCH = 1000
_NO_SECONDS = 1e11
"""Seconds are fewer for the next three thousand years; milliseconds are more."""
_ANY_TIME = datetime.max.replace(tzinfo=UTC)
"""Of a score that is no time. Reports may be hidden below it (only what is greater replaces it), so that whose it is
may be in use: like any moment in the future it counts as now."""


class RedisUnavailable(Exception):
    """Redis did not answer: what happened lately is unknown."""


@dataclass(frozen=True, slots=True)
class ActivityLog:
    redis: Redis
    key: str = KEY

    async def record(self, seen: Mapping[WorkspaceId, datetime]) -> None:
        """Later wins, whoever comes first."""
        if not seen:
            return
        scores: dict[str, float] = {workspace_id: moment.timestamp() for workspace_id, moment in seen.items()}
        try:
            await self.redis.zadd(self.key, cast("dict[str, Any]", scores), gt=True)
        except (RedisError, OSError) as error:
            raise RedisUnavailable(f"Redis did not answer: {error}") from error

    async def read(self) -> dict[WorkspaceId, datetime]:
        """Whatever is there, also under names of nobody's: who copies it knows whom it knows."""
        try:
            found: list[tuple[bytes | str, float]] = cast(
                "Any", await self.redis.zrange(self.key, 0, -1, withscores=True)
            )
        except (RedisError, OSError) as error:
            raise RedisUnavailable(f"Redis did not answer: {error}") from error
        seen = {WorkspaceId(_text(member)): _moment(score) for member, score in found}
        if odd := [workspace_id for workspace_id, moment in seen.items() if moment is None]:
            log.warning("activity_without_a_time", count=len(odd), first=repr(odd[0]))
        return {workspace_id: moment or _ANY_TIME for workspace_id, moment in seen.items()}

    async def last_seen(self, workspace_id: WorkspaceId) -> datetime | None:
        return (await self.last_seen_of([workspace_id])).get(workspace_id)

    async def last_seen_of(self, workspaces: Sequence[WorkspaceId]) -> dict[WorkspaceId, datetime]:
        """Of those that were seen."""
        try:
            found = await self.redis.zmscore(self.key, list(workspaces))
        except (RedisError, OSError) as error:
            raise RedisUnavailable(f"Redis did not answer: {error}") from error
        scores = zip(workspaces, found, strict=True)
        return {id_: moment for id_, score in scores if score is not None and (moment := _moment(score))}

    async def remove(self, copied: Mapping[WorkspaceId, datetime]) -> None:
        items = list(copied.items())
        try:
            for start in range(0, len(items), _BATCH):
                batch = items[start : start + _BATCH]
                arguments = [value for id_, moment in batch for value in (_bytes(id_), _bound(moment))]
                await self.redis.eval(_REMOVE, 1, self.key, *arguments)
        except (RedisError, OSError) as error:
            raise RedisUnavailable(f"Redis did not answer: {error}") from error


def _moment(score: float) -> datetime | None:
    """None: it is no time in seconds."""
    return datetime.fromtimestamp(score, UTC) if 0 <= score < _NO_SECONDS else None


def _bound(moment: datetime) -> str:
    return repr(inf if moment == _ANY_TIME else moment.timestamp())


def _text(member: object) -> str:
    """A name may be no text: then it is nobody's, and has to be called by it all the same."""
    return member.decode(errors="surrogateescape") if isinstance(member, bytes) else str(member)


def _bytes(workspace_id: WorkspaceId) -> bytes:
    return workspace_id.encode(errors="surrogateescape")
