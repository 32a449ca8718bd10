"""`GET /api/v1/events`: the caller's workspaces, live (SPEC 9)."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from adapters.postgres.catalog import Catalog
from adapters.postgres.database import DatabaseUnavailable
from adapters.tasks import end
from domain.model import WorkspaceId
from starter.api.authentication import Authenticator, Current
from starter.api.dependencies import Deps
from starter.api.errors import ApiError, answers
from starter.api.hub import Hub, Screen, Shown
from starter.api.standing import Standing
from starter.api.workspace_body import WorkspaceBody

router = APIRouter(prefix="/api/v1", tags=["events"])

HEARTBEAT_SECONDS = 30.0
_SLOW_SECONDS = 30.0
# A change has the time at which it was made: one that commits late is older than what was already sent.
_OVERLAP = timedelta(seconds=10)
_NEVER, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {"text/event-stream": {}},
        "description": "Server-sent events, until the client leaves or its login ends.",
    }
}


@router.get(
    "/events",
    response_class=Response,
    responses={**_RESPONSES, **answers(401)},
)
async def events(request: Request, deps: Deps, caller: Current) -> Response:
    """`workspace_updated` (the whole workspace), `workspace_deleted`, `workspace_progress`, `heartbeat`.

    `workspace_progress` is `id`, `operation` and the fields of the workspace's `progress`, at most once a second.
    The current state comes first, then changes. A client that sends Last-Event-ID also hears what was deleted since.
    """
    if deps.hub is None:
        raise ApiError(503, "events_unavailable", "Live events need Redis: set REDIS_URL.")
    screen = deps.hub.open(caller.user.id)
    since = _since(request.headers.get("last-event-id"))
    standing = Standing(caller, Authenticator(deps.sessions, deps.tokens).still, screen.login_changed)
    return EventStream(deps.hub, deps.catalog, screen, standing, since, HEARTBEAT_SECONDS)


@dataclass(eq=False)
class EventStream(Response):
    hub: Hub
    catalog: Catalog
    screen: Screen
    standing: Standing
    since: datetime | None
    heartbeat: float
    _known: set[WorkspaceId] = field(default_factory=set)
    _sent: dict[WorkspaceId, datetime] = field(default_factory=dict)
    """How new what the client was last told is."""
    _last: int = 0
    """Microseconds: what the client says when it comes back."""

    def __post_init__(self) -> None:
        super().__init__()
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        ends = [asyncio.ensure_future(_disconnected(receive)), asyncio.ensure_future(self.standing.ended())]
        for one in ends:
            one.add_done_callback(lambda _: self.screen.arrived.set())
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            async for chunk in self._chunks(ends):
                # A client that does not read is let go; others are not held up by it.
                async with asyncio.timeout(_SLOW_SECONDS):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            return
        finally:
            self.hub.close(self.screen)
            await end(ends)

    async def _chunks(self, ends: Sequence["asyncio.Future[None]"]) -> AsyncIterator[bytes]:
        yield b"retry: 1000\n\n"
        while not any(one.done() for one in ends) and not self.hub.closing:
            if self.screen.stale or self.screen.arrived.is_set():
                self.screen.arrived.clear()
                async for chunk in self._news():
                    yield chunk
            elif await self._quiet():
                yield _event("heartbeat", {})

    async def _quiet(self) -> bool:
        """Whether nothing happened for as long as a heartbeat takes."""
        try:
            async with asyncio.timeout(self.heartbeat):
                await self.screen.arrived.wait()
        except TimeoutError:
            return True
        return False

    async def _news(self) -> AsyncIterator[bytes]:
        screen = self.screen
        if screen.stale:
            screen.stale = False
            # What is read from here on is newer than what waits.
            screen.updated, screen.progress = {}, {}
            try:
                async for chunk in self._everything():
                    yield chunk
            except DatabaseUnavailable:
                await asyncio.sleep(1)
                screen.refresh()
                return
        updated, screen.updated = screen.updated, {}
        progress, screen.progress = screen.progress, {}
        for workspace_id, shown in updated.items():
            if self._is_news(workspace_id, shown):
                yield self._state(workspace_id, shown)
        for workspace_id, details in progress.items():
            if workspace_id in self._known:
                yield _event("workspace_progress", {"id": workspace_id, **details})

    async def _everything(self) -> AsyncIterator[bytes]:
        """The current state, and what is no more."""
        current: set[WorkspaceId] = set()
        async for entry in self.catalog.everything(self.screen.user_id):
            current.add(entry.workspace.id)
            yield self._state(entry.workspace.id, Shown(entry))
        gone = self._known - current
        if self.since is not None:
            gone |= set(await self.catalog.deleted_since(self.screen.user_id, self.since - _OVERLAP))
            self.since = None
        for workspace_id in gone:
            yield self._state(workspace_id, None)

    def _is_news(self, workspace_id: WorkspaceId, shown: Shown | None) -> bool:
        """The hub may have read it before we read, and queued it after: no client goes back to what was."""
        return _version(shown) > self._sent.get(workspace_id, _NEVER)

    def _state(self, workspace_id: WorkspaceId, shown: Shown | None) -> bytes:
        self._sent[workspace_id] = _version(shown)
        if shown is None:
            self._known.discard(workspace_id)
            return _event("workspace_deleted", {"id": workspace_id})
        self._known.add(workspace_id)
        self._last = max(self._last, int(shown.entry.workspace.updated_at.timestamp() * 1_000_000))
        if shown.body is None:
            shown.body = WorkspaceBody.of(shown.entry).model_dump_json()
        return _framed("workspace_updated", shown.body, str(self._last))


def _version(shown: Shown | None) -> datetime:
    """A deletion is the last there is."""
    return shown.entry.workspace.updated_at if shown else _LAST


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _event(name: str, body: dict[str, Any]) -> bytes:
    return _framed(name, json.dumps(body), None)


def _framed(name: str, body: str, event_id: str | None) -> bytes:
    identity = f"id: {event_id}\n" if event_id else ""
    return f"{identity}event: {name}\ndata: {body}\n\n".encode()


def _since(last_event_id: str | None) -> datetime | None:
    """What is not ours is as good as none."""
    try:
        return datetime.fromtimestamp(int(last_event_id or "") / 1_000_000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
