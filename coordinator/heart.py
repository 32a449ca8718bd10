"""A worker's word for its node: who it is, and that its engine answers."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic
from typing import Protocol

import structlog

from adapters.docker.engine import Identity
from adapters.postgres.database import DatabaseUnavailable
from adapters.postgres.nodes import Nodes, Registration
from adapters.telemetry.metrics import SKIPPED
from domain.errors import ActionFailed, Unreachable

log = structlog.get_logger()

_ASK_AGAIN = 1.0


class NotThisNode(ActionFailed):
    """The name is another engine's. No retry mends that: whoever goes on would do the node's work on the wrong one."""


Clock = Callable[[], float | None]


class AnsweringEngine(Protocol):
    async def identify(self) -> Identity: ...

    def registered(self, marker: str) -> None: ...

    async def confirm(self) -> None:
        """Raises Unreachable, also where it is another engine that answers. As cheap as can be."""
        ...


@dataclass(slots=True)
class Heart:
    nodes: Nodes
    engine: AnsweringEngine
    node: str
    address: str = "127.0.0.1"
    capacity: int | None = None
    interval: float = 5.0
    swept_at: Clock = field(default=lambda: None)
    """When this process's observer began its last complete sweep, if it is the one that sweeps."""
    task: asyncio.Task[None] | None = field(default=None, init=False)
    _marker: str | None = field(default=None, init=False)

    async def register(self) -> None:
        """Raises Unreachable while the engine is away, and NotThisNode."""
        found = await self.engine.identify()
        info = found.info
        told = Registration(
            self.node, info.id, self.address, self.capacity, info.ncpu, info.mem, found.marker, found.holds_homes
        )
        # An empty engine whose worker is gone, or which was made anew, gives its name away once it has been silent.
        until = monotonic() + 1.5 * self.nodes.lost_after.total_seconds()
        while not await self.nodes.register(told):
            entry = await self.nodes.get(self.node)
            if (entry and entry.homes) or monotonic() > until:
                raise NotThisNode(
                    f"node {self.node!r} is another Docker engine than this one, or this one runs without its data: "
                    "homes are on that one, or another worker serves it. Serve it, or give this one a name of its "
                    "own: codehub worker --node NAME. If that engine is gone for good, and what was on it with it: "
                    f"codehub node rm {self.node} --accept-loss"
                )
            await asyncio.sleep(_ASK_AGAIN)
        self._marker = found.marker
        self.engine.registered(found.marker)

    def start(self) -> asyncio.Task[None]:
        self.task = asyncio.create_task(self.run(), name="heart")
        return self.task

    async def run(self) -> None:
        """Beats while the engine answers: a node that can do nothing is as good as lost. Raises NotThisNode."""
        while True:
            try:
                if self._marker is not None:
                    await self.engine.confirm()
                    if not await self.nodes.beat(self.node, self._swept(), self._marker):
                        await self.register()
            except NotThisNode:
                raise
            except (Unreachable, ActionFailed, DatabaseUnavailable) as error:
                SKIPPED.labels("heart").inc()
                log.warning("node_silent", node=self.node, error=str(error))
            except Exception:
                # Whatever it was: its silence is heard, and to end the worker would end all that it does.
                SKIPPED.labels("heart").inc()
                log.exception("heart_failed", node=self.node)
            await asyncio.sleep(self.interval)

    def _swept(self) -> timedelta | None:
        at = self.swept_at()
        return timedelta(seconds=monotonic() - at) if at is not None else None
