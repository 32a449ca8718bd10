"""Reconcile: load the row, observe, judge, decide, save in one transaction, and say what comes next (SPEC 4)."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import uuid4

import structlog
from temporalio import activity

from adapters.archive_store import ArchiveObserver
from adapters.postgres.workspaces import WorkspaceStore
from adapters.runtime import Runtime
from domain.apply import apply
from domain.judge import judge, needs_archive
from domain.model import Operation, OperationId, Workspace, WorkspaceId
from domain.observation import Observation, Presence, Resources
from domain.plan import DEFAULT_TIMEOUTS, Action, Decision, Timeouts, decide
from workflows.messages import FAIL, RECONCILE, FailInput, ReconcileInput, Status, Step, StepKind

log = structlog.get_logger()

_TRIES = 20


@dataclass(frozen=True, slots=True)
class Pace:
    """How soon to look again (SPEC 4)."""

    active: timedelta = timedelta(seconds=1)
    active_duration: timedelta = timedelta(seconds=30)
    idle: timedelta = timedelta(seconds=15)
    safety: timedelta = timedelta(hours=1)

    def look_again(self, looks: int) -> timedelta:
        return self.active if looks * self.active < self.active_duration else self.idle

    def rest(self) -> timedelta:
        """The observer wakes what drifts; this only catches what it missed. Jittered, so that not all wake at once."""
        return self.safety * random.uniform(0.75, 1.25)  # noqa: S311 - spreads load


def _new_id() -> OperationId:
    return OperationId(str(uuid4()))


@dataclass(frozen=True, slots=True)
class Reconciler:
    store: WorkspaceStore
    runtime: Runtime
    archives: ArchiveObserver
    node: str = "local"
    timeouts: Timeouts = field(default_factory=lambda: DEFAULT_TIMEOUTS)
    pace: Pace = field(default_factory=Pace)
    new_id: Callable[[], OperationId] = _new_id

    @activity.defn(name=RECONCILE)
    async def reconcile(self, request: ReconcileInput) -> Step:
        if request.resumed:
            await self.store.restart_clock(request.workspace_id)
        return await self.step(request.workspace_id, request.looks)

    @activity.defn(name=FAIL)
    async def fail(self, request: FailInput) -> None:
        await self.store.fail(request.workspace_id, request.op_id, request.reason, request.message)
        log.warning(
            "operation_failed",
            workspace=request.workspace_id,
            operation_id=request.op_id,
            reason=request.reason,
            message=request.message,
        )

    async def step(self, workspace_id: WorkspaceId, looks: int = 0) -> Step:
        for _ in range(_TRIES):
            loaded = await self.store.load_now(workspace_id)
            if loaded is None:
                return Step(StepKind.GONE)
            ws, now = loaded
            seen = await self.observe(ws)
            judgement = judge(ws, seen, now)
            decision = decide(ws, judgement, seen, now, self.timeouts)
            row = apply(ws, judgement, decision, seen, now, self.new_id(), self.node)
            if await self.store.save(ws, row, _message(decision)):
                _tell(ws, row, decision)
                return self._step(row, decision, looks)
            log.info("row_moved_on", workspace=workspace_id)
        raise RuntimeError(f"the row of {workspace_id} moves on faster than it can be judged")

    async def observe(self, ws: Workspace) -> Observation:
        # A row without a node has never had a volume or has none any more: the claim that makes one sets it.
        resources = Resources()
        if ws.node is not None:
            resources = await self.runtime.observe(ws.id, probe=ws.operation is Operation.STARTING)
        archive = Presence.UNKNOWN
        if ws.archive_key is not None and needs_archive(ws, resources):
            archive = await self.archives.observe(ws.archive_key)
        return Observation(resources, archive)

    def _step(self, row: Workspace, decision: Decision, looks: int) -> Step:
        status = Status(
            phase=row.phase,
            operation=row.operation,
            desired_state=row.desired_state,
            owner=row.owner_user_id,
            name=row.name,
            node=row.node,
            error_reason=row.error_reason,
        )
        match decision.action:
            case Action.GONE:
                return Step(StepKind.GONE, status)
            case Action.CLAIM | Action.RESUME if row.op_id is not None:
                timeout = self.timeouts[row.operation].total_seconds()
                return Step(StepKind.RUN, status, row.operation, row.op_id, timeout_seconds=timeout)
            case Action.LOOK_AGAIN:
                wait = self.pace.look_again(looks).total_seconds()
                return Step(StepKind.WAIT, status, wait_seconds=wait, looking=True)
        return Step(StepKind.WAIT, status, wait_seconds=self.pace.rest().total_seconds())


def _message(decision: Decision) -> str | None:
    return f"found while {decision.operation} was under way" if decision.action is Action.FAIL else None


def _tell(before: Workspace, after: Workspace, decision: Decision) -> None:
    if before.phase is not after.phase or decision.action in {Action.CLAIM, Action.FAIL}:
        log.info(
            "reconciled",
            workspace=after.id,
            phase=after.phase,
            was=before.phase,
            desired_state=after.desired_state,
            operation=after.operation,
            operation_id=after.op_id,
            error_reason=after.error_reason,
        )
