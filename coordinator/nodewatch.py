"""Nodes that are lost, nodes that are back, and nodes that are being drained. The leader's business.

A node is lost when no worker of it has said for a while that its engine answers, and it would have been heard: a
database that was away has heard nobody. Another node that was heard all that time proves that it was not away, so a new
leader loses no time. Its workspaces are Unreachable then, and are recovered when it returns: nothing was done to them
meanwhile, and nothing was decided about their data.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic

import structlog

from adapters.postgres.actor import acting
from adapters.postgres.database import DatabaseUnavailable
from adapters.postgres.desired_state import DesiredStates
from adapters.postgres.nodes import Nodes
from adapters.telemetry.metrics import SKIPPED
from domain.audit import Actor, ActorKind
from domain.model import WorkspaceId
from workflows.client import TemporalUnavailable, Waker

log = structlog.get_logger()

_RETURN = Actor(ActorKind.SYSTEM, name="codehub", reason="its node is back")
_AGAIN = 10.0
"""Seconds before the same workspace is tried again."""
_AT_A_TIME = 50
"""Workspaces that are recovered in one transaction: it holds the limits' lock, and people start workspaces, too."""


Look = Callable[[], Awaitable[None]]


@dataclass(slots=True)
class NodeWatch:
    nodes: Nodes
    desired: DesiredStates
    waker: Waker
    interval: float = 1.0
    """Seconds between looks for what is lost; whatever else there is has three times as long."""
    at_once: int = 4
    """Homes that leave drained nodes at a time."""
    _tried: dict[tuple[str, WorkspaceId], float] = field(default_factory=dict, init=False)
    _hears_since: float | None = field(default=None, init=False)

    @property
    def looks(self) -> Mapping[Look, float]:
        """Each goes on by itself, every so many seconds: what a thousand homes of one node take their time for keeps
        nobody from noticing that another node is lost."""
        unhurried = 3 * self.interval
        return {self.declare: self.interval, self.tell: self.interval, self.heal: unhurried, self.send_off: unhurried}

    async def run(self) -> None:
        self._hears_since = None
        async with asyncio.TaskGroup() as loops:
            for look, interval in self.looks.items():
                loops.create_task(self._again_and_again(look, interval))

    async def _again_and_again(self, look: Look, interval: float) -> None:
        while True:
            try:
                await look()
            except (DatabaseUnavailable, TemporalUnavailable) as error:
                SKIPPED.labels("nodes").inc()
                log.warning("nodes_not_watched", error=str(error))
                if isinstance(error, DatabaseUnavailable):
                    self._hears_since = None
            await asyncio.sleep(interval)

    async def declare(self) -> None:
        """Which nodes are lost. Not one that is alone: whoever could tell is lost with it."""
        if await self.nodes.several():
            for name in await self.nodes.declare_lost(heard=self._would_have_heard()):
                log.warning("node_lost", node=name)

    async def tell(self) -> None:
        """The workspaces of lost nodes, also those that wait for their turn there."""
        await self.waker.wake_all(self._untried("lost", await self.nodes.lost()))

    async def heal(self) -> None:
        """Workspaces whose node is back, as a person would: what should be RUNNING needs a place among the RUNNING."""
        waiting = self._untried("returned", await self.nodes.returned())
        for first in range(0, len(waiting), _AT_A_TIME):
            with acting(_RETURN):
                recovered, refused = await self.desired.recover_with_node(waiting[first : first + _AT_A_TIME])
            for workspace_id, refusal in refused.items():
                log.warning("returned_but_not_recovered", workspace=workspace_id, reason=refusal)
            if recovered:
                log.info("recovered_with_their_node", workspaces=recovered)
            await self.waker.wake_all(recovered)

    async def send_off(self) -> None:
        """The next homes of drained nodes."""
        for name in await self.nodes.draining():
            leaving = await self.nodes.send_off(name, self.at_once)
            if leaving:
                log.info("homes_leave_node", node=name, workspaces=leaving)
            await self.waker.wake_all(leaving)

    def _would_have_heard(self) -> bool:
        now = monotonic()
        self._hears_since = now if self._hears_since is None else self._hears_since
        return now - self._hears_since >= self.nodes.lost_after.total_seconds()

    def _untried(self, why: str, workspaces: list[WorkspaceId]) -> list[WorkspaceId]:
        """What was just tried shows its effect in a moment; to ask for it again and again only makes histories long."""
        now = monotonic()
        self._tried = {tried: at for tried, at in self._tried.items() if now - at < _AGAIN}
        fresh = [workspace_id for workspace_id in workspaces if (why, workspace_id) not in self._tried]
        self._tried |= {(why, workspace_id): now for workspace_id in fresh}
        return fresh
