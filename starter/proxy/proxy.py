"""The proxy, put together: what its connections share, and what runs beside them."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import structlog
from starlette.types import ASGIApp

from adapters.postgres.database import Database
from adapters.postgres.workspaces import WorkspaceStore
from adapters.redis.events import EventBus
from adapters.tasks import end, supervised
from adapters.telemetry.metrics import SKIPPED
from domain.hosts import Hosts
from domain.model import WorkspaceId
from starter.api.authentication import Authenticator
from starter.api.dependencies import Dependencies
from starter.proxy.activity import Activity, ActivityReport
from starter.proxy.decide import View
from starter.proxy.directory import Directory
from starter.proxy.door import Door
from starter.proxy.hosted import Hosted
from starter.proxy.identities import SECONDS, Identities, Proof
from starter.proxy.invalidation import Invalidation
from starter.proxy.relay import Relay
from starter.proxy.route import Places
from starter.proxy.tunnel import Tunnel
from starter.proxy.upstream import Pool
from starter.proxy.watch import Watch

log = structlog.get_logger()

_PRUNE_SECONDS = 1.0
# Their owners' way, and the admins'.
_WORKSPACES = re.compile(r"/api/v1/(?:admin/)?workspaces(?:/([^/]+))?")


class Proxy:
    def __init__(
        self,
        deps: Dependencies,
        bus: EventBus | None = None,
        *,
        flush_interval: float = 30.0,
        page_timeout: float = 60.0,
        hosts: Hosts | None = None,
    ) -> None:
        """Without Redis, `bus` is None: then nothing tells of activity, and nobody is put to sleep for want of it.
        `page_timeout`: how long a page that a person opens may take to begin. `hosts`: workspaces have host names of
        their own.
        """
        self._hub = deps.hub
        self.catalog = deps.catalog
        self.desired_states = deps.desired_states
        self.wakes = deps.wakes
        self.trusted = deps.config.trusted_proxies
        self.page_timeout = page_timeout
        self.places = Places(hosts)
        self.hosted = Hosted(hosts, deps.sessions, bus.redis) if hosts is not None and bus is not None else None
        at_host = self.hosted.identify if self.hosted is not None else None
        self.identities = Identities(Authenticator(deps.sessions, deps.tokens), at_host)
        self.directory = Directory(_loader(deps.database))
        self.pool = Pool()
        self.activity = Activity()
        self.open: set[Relay | Tunnel] = set()
        self._beside: dict[str, Callable[[], Awaitable[None]]] = {
            "recheck": self._recheck_forever,
            "connections": self._prune_forever,
        }
        if bus is not None:
            self._beside["activity"] = ActivityReport(self.activity, bus.redis, deps.database, flush_interval).run
            self._beside["invalidation"] = Invalidation(bus, self.directory, self.sessions_changed).run
        self._sessions_changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def protocol(self) -> Any:
        """For uvicorn's `http=`: connections that serve workspaces, and hand all else to the application."""
        return partial(Door, self)

    def around(self, app: ASGIApp) -> ASGIApp:
        """The application for uvicorn."""
        return Watch(app, self._api_changed)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Around the server: it has to be over before what it shares is closed."""
        beside = [asyncio.create_task(supervised(name, run), name=name) for name, run in self._beside.items()]
        try:
            yield
        finally:
            await end([*beside, *self._tasks])
            self.pool.close()

    def spawn(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def sessions_changed(self) -> None:
        """Somebody logged in or out, or changed a password, a token or a user; here or in another process."""
        self.identities.forget()
        self._sessions_changed.set()
        if self._hub is not None:
            self._hub.logins_changed()

    def _api_changed(self, path: str) -> None:
        if found := _WORKSPACES.match(path):
            self.directory.invalidate(WorkspaceId(found[1] or ""))
        else:
            self.sessions_changed()

    async def _recheck_forever(self) -> None:
        """What stays open is asked for its proof again and again: a terminal ends with the session it was opened by."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(SECONDS):
                    await self._sessions_changed.wait()
            self._sessions_changed.clear()
            proofs: dict[Proof, list[Relay | Tunnel]] = {}
            for one in self.open:
                proofs.setdefault(one.proof, []).append(one)
            for proof, held in proofs.items():
                if not await self._still_stands(proof):
                    log.info("cut_off", connections=len(held))
                    # Some may have ended meanwhile, and their connections be another's.
                    for one in self.open.intersection(held):
                        one.cut()

    async def _still_stands(self, proof: Proof) -> bool:
        """Unknown is not ended; and whatever is wrong with one proof, the others are asked for."""
        try:
            return await self.identities.check(proof) is not None
        except Exception as error:  # noqa: BLE001 - the next round asks again
            SKIPPED.labels("recheck").inc()
            log.warning("recheck_skipped", error=repr(error))
            return True

    async def _prune_forever(self) -> None:
        while True:
            await asyncio.sleep(_PRUNE_SECONDS)
            self.pool.prune()


def _loader(database: Database) -> Any:
    store = WorkspaceStore(database)

    async def load(workspace_id: WorkspaceId) -> View | None:
        ws = await store.load(workspace_id)
        return View.of(ws) if ws else None

    return load
