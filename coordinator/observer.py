"""The Observer: notices drift for all workspaces of one node at once, and wakes only those that drifted.

Two sources: the engine's event stream (within a second) and a sweep every `interval` (whatever was missed). What
could not be observed leads to nothing: the next sweep looks again.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic

import structlog
from prometheus_client import Counter

from adapters.postgres.attention import Attention
from adapters.postgres.database import DatabaseUnavailable
from adapters.runtime import Runtime
from adapters.tasks import end
from adapters.telemetry.metrics import DRIFT, SKIPPED, SWEEP, timed
from coordinator.leftovers import Leftovers
from domain.errors import Unreachable, WorkspaceError
from domain.model import WorkspaceId
from domain.observation import ContainerState, Resources
from workflows.client import TemporalUnavailable, Waker

log = structlog.get_logger()

_SHARE = 0.8
"""Of the interval within which drift is to be noticed. The rest is for the look itself, and for whoever is woken."""
_RECHECK = 1.0
_DEBOUNCE = 0.05
_LONGEST = 10.0
"""Seconds for the isolation, so that the next sweep is not late."""
_RUNNING = frozenset({ContainerState.READY, ContainerState.UNREADY})


@dataclass(slots=True)
class Observer:
    node: str
    attention: Attention
    runtime: Runtime
    waker: Waker
    interval: float = 15.0
    signals: int = field(default=0, init=False)
    swept_at: float | None = field(default=None, init=False)
    """When the last complete sweep began, by the monotonic clock."""

    async def sweep_forever(self) -> None:
        """From begin to begin. What takes long, to clear away what nobody looks after, is done beside it."""
        clearing: asyncio.Task[None] | None = None
        try:
            while True:
                began = monotonic()
                seen: Mapping[WorkspaceId, Resources] = {}
                with _skipping(SKIPPED.labels("sweep"), "sweep_skipped", self.node), timed(SWEEP):
                    seen, _ = await self._look()
                if clearing is None or clearing.done():
                    if clearing is not None:
                        clearing.result()
                    clearing = asyncio.create_task(self._clear(seen))
                await asyncio.sleep(max(0.0, self.interval * _SHARE - (monotonic() - began)))
        finally:
            if clearing is not None:
                await end([clearing])

    async def sweep(self) -> list[WorkspaceId]:
        """One look at everything of this node, and what there is to clear away; returns what was woken."""
        seen, woken = await self._look()
        await Leftovers(self.node, self.attention, self.runtime).clear(seen)
        return woken

    async def _look(self) -> tuple[Mapping[WorkspaceId, Resources], list[WorkspaceId]]:
        """What is there, and who was woken because of it."""
        began = monotonic()
        seen = await self.runtime.observe_all()
        try:
            woken = await self.attention.drifted(self.node, seen)
            await self._wake(woken, "sweep")
            self.swept_at = began
        finally:
            # Also while the database is away.
            await self._isolate(seen)
        return seen, woken

    async def _clear(self, seen: Mapping[WorkspaceId, Resources]) -> None:
        with _skipping(SKIPPED.labels("clearing"), "clearing_skipped", self.node):
            await Leftovers(self.node, self.attention, self.runtime).clear(seen)

    async def follow_events(self) -> None:
        """Look at what the engine says has changed, once it is at rest. Ends, and fails, with whichever of the two ends
        first: without the other it would do nothing."""
        changed: dict[WorkspaceId, float] = {}
        arrived = asyncio.Event()
        both = [
            asyncio.create_task(self._note_changed(changed, arrived)),
            asyncio.create_task(self._check_changed(changed, arrived)),
        ]
        try:
            ended, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        finally:
            await end(both)

    async def _note_changed(self, changed: dict[WorkspaceId, float], arrived: asyncio.Event) -> None:
        async with self.runtime.watch() as changes:
            # What changed while nobody listened: an engine that was restarted has ended all of them.
            await self._look()
            async for workspace_id in changes:
                changed[workspace_id] = monotonic()
                arrived.set()

    async def _check_changed(self, changed: dict[WorkspaceId, float], arrived: asyncio.Event) -> None:
        while True:
            await arrived.wait()
            await asyncio.sleep(_DEBOUNCE)
            arrived.clear()
            batch = dict(changed)
            changed.clear()
            again = set(batch)
            try:
                now = monotonic()
                ago = {workspace_id: timedelta(seconds=now - when) for workspace_id, when in batch.items()}
                busy, seen = await self.attention.in_operation(ago)
                await self._check(set(batch) - busy - seen)
                again = busy
            except (Unreachable, DatabaseUnavailable, TemporalUnavailable) as error:
                SKIPPED.labels("events").inc()
                log.warning("change_not_checked", node=self.node, error=str(error))
            if again:
                # An operation looks for itself when it ends; what changes behind its back meanwhile is seen then.
                for workspace_id in again:
                    changed.setdefault(workspace_id, batch[workspace_id])
                asyncio.get_running_loop().call_later(_RECHECK, arrived.set)

    async def _check(self, batch: set[WorkspaceId]) -> None:
        if not batch:
            return
        ids = list(batch)
        looks = await asyncio.gather(*(self.runtime.observe(workspace_id, probe=False) for workspace_id in ids))
        seen = {id_: resources for id_, resources in zip(ids, looks, strict=True) if resources.known}
        await self._wake(await self.attention.drifted_among(self.node, seen), "event")

    async def _isolate(self, seen: Mapping[WorkspaceId, Resources]) -> None:
        """A start is not all that there is: who reloads a firewall opens it under those that run."""
        if not any(resources.container in _RUNNING for resources in seen.values()):
            return
        try:
            async with asyncio.timeout(_LONGEST):
                await self.runtime.isolate()
        except (WorkspaceError, TimeoutError) as error:
            SKIPPED.labels("isolation").inc()
            log.warning("isolation_skipped", node=self.node, error=str(error) or "it took too long")
        except Exception:
            # Whatever it was, the rest of the sweep is not to blame.
            SKIPPED.labels("isolation").inc()
            log.exception("isolation_failed", node=self.node)

    async def _wake(self, workspaces: list[WorkspaceId], source: str) -> None:
        await self.waker.wake_all(workspaces)
        self.signals += len(workspaces)
        DRIFT.labels(source).inc(len(workspaces))
        for workspace_id in workspaces:
            log.info("woken_by_observer", workspace=workspace_id, source=source)


@contextmanager
def _skipping(skipped: Counter, event: str, node: str) -> Iterator[None]:
    try:
        yield
    except (Unreachable, DatabaseUnavailable, TemporalUnavailable) as error:
        skipped.inc()
        log.warning(event, node=node, error=str(error))
