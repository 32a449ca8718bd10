"""`GET /api/v1/events`: the caller's workspaces, live (SPEC 9)."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from adapters.postgres.catalog import Catalog, Entry
from adapters.postgres.database import DatabaseUnavailable
from domain.model import WorkspaceId
from starter.api.authentication import Current
from starter.api.dependencies import Deps
from starter.api.errors import ApiError, answers
from starter.api.hub import Hub, Screen
from starter.api.workspace_body import WorkspaceBody

router = APIRouter(prefix="/api/v1", tags=["events"])

HEARTBEAT_SECONDS = 30.0
_SLOW_SECONDS = 30.0
_PAGE = 200
# A transaction's time is that of its beginning: one that commits late is older than what was already sent.
_OVERLAP = timedelta(seconds=10)


_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {}}, "description": "Server-sent events, until the client leaves."}
}


@router.get(
    "/events",
    response_class=Response,
    responses={**_RESPONSES, **answers(401)},
)
async def events(request: Request, deps: Deps, caller: Current) -> Response:
    """`workspace_updated` (the whole workspace), `workspace_deleted`, `workspace_progress`, `heartbeat`.

    The current state comes first, then changes. A client that sends Last-Event-ID also hears what was deleted since.
    """
    if deps.hub is None:
        raise ApiError(503, "events_unavailable", "Live events need Redis: set REDIS_URL.")
    screen = deps.hub.open(caller.user.id)
    since = _since(request.headers.get("last-event-id"))
    return EventStream(deps.hub, deps.catalog, screen, since, HEARTBEAT_SECONDS)


@dataclass(eq=False)
class EventStream(Response):
    hub: Hub
    catalog: Catalog
    screen: Screen
    since: datetime | None
    heartbeat: float
    _known: set[WorkspaceId] = field(default_factory=set)
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
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            async for chunk in self._chunks(gone):
                # A client that does not read is let go; others are not held up by it.
                async with asyncio.timeout(_SLOW_SECONDS):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            return
        finally:
            gone.cancel()
            self.hub.close(self.screen)

    async def _chunks(self, gone: "asyncio.Future[None]") -> AsyncIterator[bytes]:
        yield b"retry: 1000\n\n"
        while not gone.done() and not self.hub.closing:
            if self.screen.stale or self.screen.arrived.is_set():
                self.screen.arrived.clear()
                async for chunk in self._news():
                    yield chunk
            elif await self._quiet(gone):
                yield _event("heartbeat", {})

    async def _quiet(self, gone: "asyncio.Future[None]") -> bool:
        """Whether nothing happened for as long as a heartbeat takes."""
        arrived = asyncio.ensure_future(self.screen.arrived.wait())
        both: set[asyncio.Future[Any]] = {arrived, gone}
        done, _ = await asyncio.wait(both, timeout=self.heartbeat, return_when=asyncio.FIRST_COMPLETED)
        arrived.cancel()
        return not done

    async def _news(self) -> AsyncIterator[bytes]:
        screen = self.screen
        if screen.stale:
            screen.stale = False
            try:
                async for chunk in self._everything():
                    yield chunk
            except DatabaseUnavailable:
                await asyncio.sleep(1)
                screen.refresh()
                return
        updated, screen.updated = screen.updated, {}
        progress, screen.progress = screen.progress, {}
        for workspace_id, entry in updated.items():
            yield self._state(workspace_id, entry)
        for workspace_id, details in progress.items():
            if workspace_id in self._known:
                yield _event("workspace_progress", {"id": workspace_id, **details})

    async def _everything(self) -> AsyncIterator[bytes]:
        """The current state, and what is no more."""
        current: set[WorkspaceId] = set()
        offset, total = 0, 1
        while offset < total:
            page = await self.catalog.page(self.screen.user_id, limit=_PAGE, offset=offset)
            offset, total = offset + _PAGE, page.total
            for entry in page.items:
                current.add(entry.workspace.id)
                yield self._state(entry.workspace.id, entry)
        gone = self._known - current
        if self.since is not None:
            gone |= set(await self.catalog.deleted_since(self.screen.user_id, self.since - _OVERLAP))
            self.since = None
        for workspace_id in gone:
            yield self._state(workspace_id, None)

    def _state(self, workspace_id: WorkspaceId, entry: Entry | None) -> bytes:
        if entry is None:
            self._known.discard(workspace_id)
            return _event("workspace_deleted", {"id": workspace_id})
        self._known.add(workspace_id)
        self._last = max(self._last, int(entry.workspace.updated_at.timestamp() * 1_000_000))
        return _framed("workspace_updated", WorkspaceBody.of(entry).model_dump_json(), str(self._last))


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
