"""Nodes that are lost, nodes that are back, and nodes that are being drained. The leader's business.

A node is lost when no worker of it has said for a while that its engine answers, and it would have been heard: a
database that was away has heard nobody. Another node that was heard all that time proves that it was not away, so a new
leader loses no time. Its workspaces are Unreachable then, and are recovered when it returns: nothing was done to them
meanwhile, and nothing was decided about their data.
"""

import asyncio
from dataclasses import dataclass, field
from time import monotonic

import structlog

from adapters.postgres.actor import acting
from adapters.postgres.database import DatabaseUnavailable
from adapters.postgres.desired_state import DesiredStates, Refused
from adapters.postgres.nodes import Nodes
from adapters.telemetry.metrics import SKIPPED
from domain.audit import Actor, ActorKind
from domain.model import WorkspaceId
from workflows.client import TemporalUnavailable, Waker

log = structlog.get_logger()

_RETURN = Actor(ActorKind.SYSTEM, name="codehub", reason="its node is back")
_AGAIN = 10.0
"""Seconds before the same workspace is tried again."""


@dataclass(slots=True)
class NodeWatch:
    nodes: Nodes
    desired: DesiredStates
    waker: Waker
    interval: float = 3.0
    at_once: int = 4
    """Homes that leave drained nodes at a time."""
    _tried: dict[WorkspaceId, float] = field(default_factory=dict, init=False)
    _hears_since: float | None = field(default=None, init=False)

    async def run(self) -> None:
        self._hears_since = None
        while True:
            try:
                await self.look()
            except (DatabaseUnavailable, TemporalUnavailable) as error:
                SKIPPED.labels("nodes").inc()
                log.warning("nodes_not_watched", error=str(error))
                self._hears_since = None
            await asyncio.sleep(self.interval)

    async def look(self) -> None:
        if not await self.nodes.several():
            # One node: whoever could tell that it is lost is lost with it, and there is nowhere to move to.
            return
        self._tried = {tried: at for tried, at in self._tried.items() if monotonic() - at < _AGAIN}
        for name in await self.nodes.declare_lost(heard=self._would_have_heard()):
            log.warning("node_lost", node=name)
        await self.waker.wake_all(self._untried(await self.nodes.lost()))
        for workspace_id in self._untried(await self.nodes.returned()):
            await self._recover(workspace_id)
        for name in await self.nodes.draining():
            leaving = await self.nodes.send_off(name, self.at_once)
            if leaving:
                log.info("homes_leave_node", node=name, workspaces=leaving)
            await self.waker.wake_all(leaving)

    def _would_have_heard(self) -> bool:
        now = monotonic()
        self._hears_since = now if self._hears_since is None else self._hears_since
        return now - self._hears_since >= self.nodes.lost_after.total_seconds()

    async def _recover(self, workspace_id: WorkspaceId) -> None:
        """As a person would: one that should be RUNNING needs a place among the RUNNING ones."""
        try:
            with acting(_RETURN):
                await self.desired.recover(workspace_id)
        except Refused as refused:
            log.warning("returned_but_not_recovered", workspace=workspace_id, reason=refused.refusal)
            return
        log.info("recovered_with_its_node", workspace=workspace_id)
        await self.waker.wake(workspace_id)

    def _untried(self, workspaces: list[WorkspaceId]) -> list[WorkspaceId]:
        """What was just tried shows its effect in a moment; to ask for it again and again only makes histories long."""
        fresh = [workspace_id for workspace_id in workspaces if workspace_id not in self._tried]
        self._tried |= dict.fromkeys(fresh, monotonic())
        return fresh
