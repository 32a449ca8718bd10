"""The engine's event stream, as the workspaces that changed."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from docker import APIClient
from docker.errors import DockerException

from adapters.docker.engine import Engine
from adapters.docker.labels import WORKSPACE, Labels, Role
from domain.errors import Unreachable
from domain.model import WorkspaceId
from domain.naming import UUID, is_workspace_id

if TYPE_CHECKING:
    from docker.types.daemon import CancellableStream

Stream: TypeAlias = "CancellableStream[dict[str, Any]]"

CHANGES = ["create", "start", "die", "pause", "unpause", "destroy"]
VOLUME = re.compile(rf"ws-(?P<workspace_id>{UUID})-home")
END_SECONDS = 2.0


class DockerWatch(AsyncIterator[WorkspaceId]):
    """Workspaces whose container or volume just changed; several changes of one may come as one.

    Use it with `async with`: once entered it is subscribed, so whoever lists everything after that misses
    nothing. Without, the first `__anext__` subscribes. It says "look there", no more: the engine doesn't tell
    whose a volume is, so those of another installation can be among them.
    """

    def __init__(self, engine: Engine, installation: str) -> None:
        self._engine = engine
        self._labels = Labels(installation)
        self._changed: dict[WorkspaceId, None] = {}
        self._news = asyncio.Event()
        self._following: asyncio.Future[None] | None = None
        self._subscribed = False
        self._guard = threading.Lock()
        self._stream: Stream | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        await self._subscribe()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def __anext__(self) -> WorkspaceId:
        await self._subscribe()
        while self._closed or not self._changed:
            self._raise_if_ended()
            self._news.clear()
            await self._news.wait()
        workspace_id = next(iter(self._changed))
        del self._changed[workspace_id]
        return workspace_id

    async def aclose(self) -> None:
        """Close the connection; its thread ends with it."""
        with self._guard:
            self._closed = True
            stream = self._stream
        if stream is not None:
            # Nothing to close when the engine was faster.
            with suppress(OSError, AttributeError, DockerException):
                stream.close()
        self._news.set()
        if self._following is not None:
            self._following.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            await asyncio.wait({self._following}, timeout=END_SECONDS)

    async def _subscribe(self) -> None:
        if self._following is None and not self._closed:
            loop = asyncio.get_running_loop()
            self._following = self._engine.follow(lambda api: self._follow(api, loop))
            self._following.add_done_callback(lambda _: self._news.set())
        while not self._subscribed:
            self._raise_if_ended()
            self._news.clear()
            await self._news.wait()

    def _raise_if_ended(self) -> None:
        if self._closed:
            raise StopAsyncIteration
        if self._following is not None and self._following.done():
            self._following.result()
            raise Unreachable(f"The event stream of Docker at {self._engine.where} ended")

    def _follow(self, api: APIClient, loop: asyncio.AbstractEventLoop) -> None:
        def tell(callback: Callable[..., None], *arguments: WorkspaceId) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody listens
                loop.call_soon_threadsafe(callback, *arguments)

        stream = self._open(api)
        with self._guard:
            self._stream = stream
            closed = self._closed
        if closed:
            stream.close()
            return
        tell(self._on_subscribed)
        for event in stream:
            workspace_id = self._workspace(event)
            if workspace_id is not None:
                tell(self._on_change, workspace_id)

    def _open(self, api: APIClient) -> Stream:
        # The engine answers just before it subscribes us. Asked for what happened since its own now, it fills
        # that gap from its buffer.
        filters = {"type": ["container", "volume"], "event": CHANGES}
        since: Any = _timestamp(api.info()["SystemTime"])
        return api.events(since=since, filters=filters, decode=True)

    def _on_subscribed(self) -> None:
        self._subscribed = True
        self._news.set()

    def _on_change(self, workspace_id: WorkspaceId) -> None:
        self._changed[workspace_id] = None
        self._news.set()

    def _workspace(self, event: Mapping[str, Any]) -> WorkspaceId | None:
        actor = event["Actor"]
        if event["Type"] == "volume":
            # Events of volumes carry no labels.
            name = VOLUME.fullmatch(actor["ID"])
            return WorkspaceId(name["workspace_id"]) if name else None
        labels = actor["Attributes"]
        workspace_id = WorkspaceId(labels.get(WORKSPACE, ""))
        ours = is_workspace_id(workspace_id) and self._labels.owns(labels, Role.WORKSPACE, workspace_id)
        return workspace_id if ours else None


def _timestamp(engine_time: str) -> str:
    """`2026-01-31T12:00:00.123456789Z` as the engine takes it back: seconds and nanoseconds."""
    whole, _, fraction = engine_time.rstrip("Z").partition(".")
    seconds = int(datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp())
    return f"{seconds}.{fraction.ljust(9, '0')}"
