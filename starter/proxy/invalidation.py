"""Events that tell the directory what changed: the Redis channels of SPEC 9, one for each user, all of them."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from domain.model import WorkspaceId
from starter.proxy.directory import Directory

log = structlog.get_logger()

SSE_PREFIX = "codehub:sse:"
_RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Invalidation:
    redis: Redis
    directory: Directory
    prefix: str = SSE_PREFIX

    async def run(self) -> None:
        """Until it is cancelled. While Redis is away, the directory's ages do."""
        while True:
            try:
                await self._follow()
            except (RedisError, OSError) as error:
                log.warning("invalidation_interrupted", error=str(error))
            await asyncio.sleep(_RETRY_SECONDS)

    async def _follow(self) -> None:
        async with self.redis.pubsub(ignore_subscribe_messages=False) as events:
            await events.psubscribe(f"{self.prefix}*")
            async for event in events.listen():
                if event["type"] == "psubscribe":
                    # What was published while nobody listened is unknown.
                    self.directory.invalidate_all()
                elif event["type"] == "pmessage":
                    self._changed(event["data"])

    def _changed(self, data: Any) -> None:
        try:
            self.directory.invalidate(WorkspaceId(json.loads(data)["id"]))
        except (ValueError, KeyError, TypeError):
            self.directory.invalidate_all()
