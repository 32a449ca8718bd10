"""Of what kind a workspace's last activity was, and when: a key each, which goes by itself. Only for telling people."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, cast

from redis.asyncio import Redis
from redis.exceptions import RedisError

from adapters.redis.activity import RedisUnavailable
from domain.model import WorkspaceId

KEY = "codehub:activity:kind"
_SECONDS = 30 * 86400


class ActivityKind(StrEnum):
    HTTP = "http"
    TO_WORKSPACE = "ws-in"
    FROM_WORKSPACE = "ws-out"


@dataclass(frozen=True, slots=True)
class SeenActivity:
    at: datetime
    kind: ActivityKind


@dataclass(frozen=True, slots=True)
class KindLog:
    redis: Redis
    key: str = KEY

    async def record(self, seen: Mapping[WorkspaceId, SeenActivity]) -> None:
        try:
            async with self.redis.pipeline(transaction=False) as pipeline:
                for workspace_id, one in seen.items():
                    pipeline.set(f"{self.key}:{workspace_id}", f"{one.kind} {one.at.timestamp()!r}", ex=_SECONDS)
                await pipeline.execute()
        except (RedisError, OSError) as error:
            raise RedisUnavailable(f"Redis did not answer: {error}") from error

    async def last_of(self, workspaces: Sequence[WorkspaceId]) -> dict[WorkspaceId, SeenActivity]:
        try:
            found = cast("Any", await self.redis.mget([f"{self.key}:{workspace_id}" for workspace_id in workspaces]))
        except (RedisError, OSError) as error:
            raise RedisUnavailable(f"Redis did not answer: {error}") from error
        read = {id_: _read(value) for id_, value in zip(workspaces, found, strict=True) if value is not None}
        return {id_: seen for id_, seen in read.items() if seen is not None}


def _read(value: bytes | str) -> SeenActivity | None:
    kind, _, at = (value.decode() if isinstance(value, bytes) else value).partition(" ")
    try:
        return SeenActivity(datetime.fromtimestamp(float(at), UTC), ActivityKind(kind))
    except (ValueError, OverflowError):
        # Of another version.
        return None
