"""The proxy, put together: what its connections share, and what runs beside them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import structlog

from adapters.postgres.database import Database, DatabaseUnavailable
from adapters.postgres.workspaces import WorkspaceStore
from adapters.redis.events import EventBus
from domain.model import WorkspaceId
from starter.api.authentication import Authenticator
from starter.api.dependencies import Dependencies
from starter.proxy.activity import Activity, ActivityReport
from starter.proxy.decide import View
from starter.proxy.directory import Directory
from starter.proxy.door import Door
from starter.proxy.identities import SECONDS, Identities, Proof
from starter.proxy.invalidation import Invalidation
from starter.proxy.relay import Relay
from starter.proxy.tunnel import Tunnel
from starter.proxy.upstream import Pool

log = structlog.get_logger()

_PRUNE_SECONDS = 1.0


class Proxy:
    def __init__(self, deps: Dependencies, bus: EventBus | None = None, *, flush_interval: float = 30.0) -> None:
        """Without Redis, `bus` is None: then nothing tells of activity, and nobody is put to sleep for want of it."""
        self.catalog = deps.catalog
        self.desired_states = deps.desired_states
        self.wakes = deps.wakes
        self.trusted = deps.config.trusted_proxies
        self.identities = Identities(Authenticator(deps.sessions, deps.tokens))
        self.directory = Directory(_loader(deps.database))
        self.pool = Pool()
        self.activity = Activity()
        self.open: set[Relay | Tunnel] = set()
        self._beside: list[Callable[[], Coroutine[None, None, None]]] = [self._recheck_forever, self._prune_forever]
        if bus is not None:
            self._beside.append(ActivityReport(self.activity, bus.redis, flush_interval).run)
            self._beside.append(Invalidation(bus, self.directory).run)
        self._sessions_changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def protocol(self) -> Any:
        """For uvicorn's `http=`: connections that serve workspaces, and hand all else to the application."""
        return partial(Door, self)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Around the server: it has to be over before what it shares is closed."""
        beside = [asyncio.create_task(run()) for run in self._beside]
        try:
            yield
        finally:
            for task in [*beside, *self._tasks]:
                task.cancel()
            await asyncio.gather(*beside, *self._tasks, return_exceptions=True)
            self.pool.close()

    def spawn(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def sessions_changed(self) -> None:
        """Somebody logged in or out, or changed a password, a token or a user."""
        self.identities.forget()
        self._sessions_changed.set()

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
                try:
                    if await self.identities.check(proof) is None:
                        log.info("cut_off", connections=len(held))
                        # Some may have ended meanwhile, and their connections be another's.
                        for one in self.open.intersection(held):
                            one.cut()
                except DatabaseUnavailable as error:
                    # Unknown is not ended.
                    log.warning("recheck_skipped", error=str(error))

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
