"""Live events between processes: small messages that say what changed; whoever shows or remembers it looks again."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from redis.asyncio import Redis
from redis.exceptions import RedisError

from adapters.redis.activity import RedisUnavailable
from domain.model import UserId, WorkspaceId

SSE_PREFIX = "codehub:sse:"
EVERYONE = UserId("all")
"""The channel for what concerns all users."""
NO_WORKSPACE = WorkspaceId("")
_POLL = 1.0


class EventKind(StrEnum):
    UPDATED = "workspace_updated"
    DELETED = "workspace_deleted"
    PROGRESS = "workspace_progress"
    REFRESH = "refresh"
    """Something may have been missed: look at everything again."""
    LOGINS = "logins_changed"
    """A session or token of the user ended, or what the user may do has changed: ask again who is calling."""


_OF_NO_WORKSPACE = frozenset({EventKind.REFRESH, EventKind.LOGINS})


@dataclass(frozen=True, slots=True)
class Event:
    kind: EventKind
    user_id: UserId
    workspace_id: WorkspaceId = NO_WORKSPACE
    details: dict[str, Any] | None = None


@contextmanager
def _patient(connection: Any) -> Iterator[None]:
    """Without a timeout of its own: each command would be likely to lose the cancellation of whoever listens (see
    adapters.tasks). The pool gets the connection back as it was.
    """
    timeout, connection.socket_timeout = connection.socket_timeout, None
    try:
        yield
    finally:
        connection.socket_timeout = timeout


@dataclass(frozen=True, slots=True)
class EventBus:
    redis: Redis
    prefix: str = SSE_PREFIX

    async def publish(self, events: Sequence[Event]) -> None:
        try:
            async with self.redis.pipeline(transaction=False) as pipeline:
                for event in events:
                    body = {"type": event.kind, "id": event.workspace_id, **(event.details or {})}
                    pipeline.publish(f"{self.prefix}{event.user_id}", json.dumps(body))
                await pipeline.execute()
        except (RedisError, OSError) as error:
            raise RedisUnavailable(f"Redis did not answer: {error}") from error

    @asynccontextmanager
    async def subscribed(self) -> AsyncIterator[AsyncIterator[Event]]:
        """Every user's events; once entered, none is missed until the connection breaks (RedisUnavailable)."""
        try:
            async with self.redis.pubsub() as pubsub:
                await pubsub.psubscribe(f"{self.prefix}*")
                with _patient(pubsub.connection):
                    yield self._events(pubsub)
        except (RedisError, OSError) as error:
            raise RedisUnavailable(f"Redis did not answer: {error}") from error

    async def _events(self, pubsub: Any) -> AsyncIterator[Event]:
        while True:
            message = await pubsub.get_message(ignore_subscribe_messages=True, timeout=_POLL)
            if message is None:
                # A server that is gone without a word is found by asking.
                async with asyncio.timeout(_POLL):
                    await pubsub.ping()
                continue
            event = self._event(message)
            if event is not None:
                yield event

    def _event(self, message: dict[str, Any]) -> Event | None:
        """None for what is not ours: anybody can publish."""
        try:
            user = UserId(message["channel"].decode().removeprefix(self.prefix))
            body = json.loads(message["data"])
            kind = EventKind(body.pop("type"))
            workspace_id = NO_WORKSPACE if kind in _OF_NO_WORKSPACE else WorkspaceId(str(UUID(body.pop("id"))))
            return Event(kind, user, workspace_id, body)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
