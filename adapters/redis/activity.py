"""The ZSET in which the proxies leave when each workspace was last used."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from redis.asyncio import Redis
from redis.exceptions import RedisError

from domain.model import WorkspaceId

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
        try:
            found: list[tuple[bytes | str, float]] = cast(
                "Any", await self.redis.zrange(self.key, 0, -1, withscores=True)
            )
        except (RedisError, OSError) as error:
            raise RedisUnavailable(f"Redis did not answer: {error}") from error
        return {WorkspaceId(_text(member)): datetime.fromtimestamp(score, UTC) for member, score in found}

    async def last_seen(self, workspace_id: WorkspaceId) -> datetime | None:
        return (await self.last_seen_of([workspace_id])).get(workspace_id)

    async def last_seen_of(self, workspaces: Sequence[WorkspaceId]) -> dict[WorkspaceId, datetime]:
        """Of those that were seen."""
        try:
            found = await self.redis.zmscore(self.key, list(workspaces))
        except (RedisError, OSError) as error:
            raise RedisUnavailable(f"Redis did not answer: {error}") from error
        scores = zip(workspaces, found, strict=True)
        return {id_: datetime.fromtimestamp(score, UTC) for id_, score in scores if score is not None}

    async def remove(self, copied: Mapping[WorkspaceId, datetime]) -> None:
        items = list(copied.items())
        try:
            for start in range(0, len(items), _BATCH):
                batch = items[start : start + _BATCH]
                arguments = [value for id_, moment in batch for value in (id_, repr(moment.timestamp()))]
                await self.redis.eval(_REMOVE, 1, self.key, *arguments)
        except (RedisError, OSError) as error:
            raise RedisUnavailable(f"Redis did not answer: {error}") from error


def _text(member: object) -> str:
    return member.decode() if isinstance(member, bytes) else str(member)
