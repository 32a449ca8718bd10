"""Claiming an operation that makes a home, where there is a choice of nodes."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog

from adapters.postgres.placements import Placements
from adapters.postgres.workspaces import WorkspaceStore
from domain.apply import PLACED_BY
from domain.knowledge import says_nothing_new
from domain.model import Condition, ConditionName, Operation, Workspace
from domain.placement import NO_PLACE, choose, why_nowhere
from domain.plan import Action, Decision

log = structlog.get_logger()


def is_placed(decision: Decision) -> bool:
    return decision.action is Action.CLAIM and decision.operation in PLACED_BY


@dataclass(frozen=True, slots=True)
class Placing:
    store: WorkspaceStore

    async def save(
        self,
        ws: Workspace,
        applied: Callable[[str | None, Decision], Workspace],
        decision: Decision,
        attempt: int | None,
    ) -> tuple[Workspace, Decision] | None:
        """The claim and the place it takes, in one transaction. Without a place it waits, and says for what; it is
        woken when there is one (coordinator.waiters), so it need not look again by itself."""
        async with Placements(self.store.database).deciding() as deciding:
            places = await deciding.places()
            node = choose(places, kept=ws.move_to)
            if node is None:
                decision = replace(decision, action=Action.NOTHING, operation=Operation.NONE)
            row = applied(node, decision)
            if node is None:
                row = _waiting(row, why_nowhere(places))
                log.warning("no_place", workspace=ws.id, reason=why_nowhere(places))
                if says_nothing_new(ws, row):
                    return row, decision
            saved = await self.store.save(ws, row, attempt=attempt, within=deciding.connection)
        return (row, decision) if saved else None


def _waiting(row: Workspace, why: str) -> Workspace:
    name = ConditionName.VOLUME_READY
    former = row.conditions[name]
    waiting = Condition(status=False, reason=NO_PLACE, message=why, last_transition_time=former.last_transition_time)
    return replace(row, conditions={**row.conditions, name: waiting})
