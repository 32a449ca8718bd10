"""Reconcile: load the row, observe, judge, decide, save in one transaction, and say what comes next (SPEC 4).

Only a worker of the workspace's node can look at its engine. Another one goes by what the row says while that is
recent, and else has the node asked.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import uuid4

import structlog
from structlog.contextvars import bound_contextvars
from temporalio import activity

from activities.attempt import Attempt, Superseded
from activities.measures import measure, measure_failure
from activities.placing import Placing, is_placed
from adapters.archive_store import ArchiveObserver
from adapters.postgres.starts import Starts
from adapters.postgres.workspaces import Loaded, WorkspaceStore
from adapters.runtime import Runtime
from adapters.telemetry.metrics import RECONCILE_CONFLICTS, RECONCILING, timed
from domain.apply import apply
from domain.errors import MAX_RETRIES, Unreachable
from domain.judge import Judgement, judge, needs_archive, who_kept_silent
from domain.knowledge import has_home, is_recent, remembered, says_nothing_new
from domain.model import Operation, OperationId, Phase, Workspace, WorkspaceId
from domain.naming import DEFAULT_NODE
from domain.observation import UNKNOWN_RESOURCES, Observation, Presence, Resources
from domain.pacing import MOST, Ended, awaits_start, is_paused, pause_before_start
from domain.plan import DEFAULT_TIMEOUTS, START, Action, Decision, Timeouts, decide
from workflows.messages import (
    FAIL,
    RECONCILE,
    TASK_QUEUE,
    FailInput,
    ReconcileInput,
    Status,
    Step,
    StepKind,
    operations_queue,
)

log = structlog.get_logger()

_TRIES = 20
_TURN = timedelta(minutes=10)
"""How long an operation waits for its turn at its node before it is reconciled again. A lost node is heard of at once:
this is for wakes that were lost, and long enough that what waits keeps its place in the queue."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How soon to look again (SPEC 4)."""

    active: timedelta = timedelta(seconds=1)
    active_duration: timedelta = timedelta(seconds=30)
    idle: timedelta = timedelta(seconds=15)
    safety: timedelta = timedelta(hours=4)

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
    node: str = DEFAULT_NODE
    timeouts: Timeouts = field(default_factory=lambda: DEFAULT_TIMEOUTS)
    pace: Pace = field(default_factory=Pace)
    max_retries: int = MAX_RETRIES
    """Failed attempts that make an ERROR."""
    new_id: Callable[[], OperationId] = _new_id

    @activity.defn(name=RECONCILE)
    async def reconcile(self, request: ReconcileInput) -> Step:
        with bound_contextvars(workspace=request.workspace_id):
            if request.resumed:
                await self.store.set_clock(request.workspace_id, None, timedelta(0))
            if request.waiting and not await self._waits_in_vain(request.workspace_id):
                return Step(StepKind.ASK)
            if request.unseen or request.waiting:
                return await self._stepped(request.workspace_id, request.looks, unseen=True)
            return await self.step(request.workspace_id, request.looks)

    @activity.defn(name=FAIL)
    async def fail(self, request: FailInput) -> None:
        with bound_contextvars(workspace=request.workspace_id, operation_id=request.op_id):
            ended = await self.store.fail(
                request.workspace_id, request.op_id, request.reason, request.message, self.max_retries
            )
            if ended is not None:
                measure_failure(*ended)
            log.warning("operation_failed", reason=request.reason, message=request.message)

    def serves(self, ws: Workspace) -> bool:
        """Whether what is done to it can be done here."""
        return ws.node is None or ws.node == self.node

    async def step(self, workspace_id: WorkspaceId, looks: int = 0, attempt: Attempt | None = None) -> Step:
        """What comes next. As the end of an `attempt`, only while nobody has taken over from it: what a superseded one
        decides is heard by no one, and an operation that it claimed would be begun by no one."""
        with timed(RECONCILING):
            return await self._stepped(workspace_id, looks, attempt)

    async def _stepped(
        self, workspace_id: WorkspaceId, looks: int, attempt: Attempt | None = None, *, unseen: bool = False
    ) -> Step:
        for _ in range(_TRIES):
            loaded = await self.store.load_now(workspace_id, self.node)
            if loaded is None:
                return Step(StepKind.GONE)
            if attempt is not None and loaded.workspace.op_id != attempt.op_id:
                raise Superseded(f"{attempt.op_id} is over")
            if not unseen and self._has_to_ask(loaded):
                queue = operations_queue(loaded.workspace.node or self.node)
                return Step(StepKind.ASK, task_queue=queue, turn_within_seconds=_TURN.total_seconds())
            ws, now = loaded.workspace, loaded.now
            seen, latest = await self._looked(loaded, unseen=unseen)
            judgement = judge(ws, seen, now)
            decision = decide(ws, judgement, seen, now, self.timeouts, attempted=loaded.attempted)
            if decision == START:
                decision = _paced(latest if latest is not None else await self._latest(ws), now)
            saved = await self._saved(loaded, judgement, decision, seen, attempt.number if attempt else None)
            if saved is not None:
                row, decision = saved
                _tell(ws, row, decision)
                measure(ws, row, decision, now)
                if attempt is not None and decision.action is Action.RESUME and (silent := who_kept_silent(ws, seen)):
                    raise Unreachable(f"{silent} did not answer when it was asked whether {row.operation} is done")
                return self._step(row, decision, looks, loaded)
            if attempt is not None and not await self.store.is_current(attempt.op_id, attempt.number):
                raise Superseded(f"attempt {attempt.number} of {attempt.op_id} was superseded")
            RECONCILE_CONFLICTS.inc()
            log.info("row_moved_on", workspace=workspace_id)
        raise RuntimeError(f"the row of {workspace_id} moves on faster than it can be judged")

    async def _looked(self, loaded: Loaded, *, unseen: bool) -> tuple[Observation, list[Ended] | None]:
        """With its last operations, where a start is to be expected: they are asked for while the engine is."""
        if not awaits_start(loaded.workspace):
            return await self.observe(loaded, unseen=unseen), None
        return await asyncio.gather(self.observe(loaded, unseen=unseen), self._latest(loaded.workspace))

    async def _latest(self, ws: Workspace) -> list[Ended]:
        return await Starts(self.store.database).latest(ws.id, MOST)

    async def observe(self, loaded: Loaded, *, unseen: bool = False) -> Observation:
        ws = loaded.workspace
        resources, lost = await self._resources(loaded, unseen=unseen)
        archive = Presence.UNKNOWN
        if ws.archive_key is not None and needs_archive(ws, resources):
            archive = await self.archives.observe(ws.archive_key)
        return Observation(resources, archive, node_lost=lost)

    async def _resources(self, loaded: Loaded, *, unseen: bool) -> tuple[Resources, bool]:
        """What its node holds, and whether the node is lost."""
        ws = loaded.workspace
        # A row without a node has never had a volume or has none any more: the claim that makes one sets it.
        if ws.node is None or self._is_free(loaded):
            return Resources(), False
        lost = self._is_lost(loaded)
        if ws.node == self.node:
            resources = await self.runtime.observe(ws.id, probe=ws.operation is Operation.STARTING)
            return resources, lost and not resources.known
        if lost or unseen:
            return UNKNOWN_RESOURCES, lost
        return remembered(ws), False

    def _has_to_ask(self, loaded: Loaded) -> bool:
        ws = loaded.workspace
        if self.serves(ws) or self._is_free(loaded) or self._is_lost(loaded):
            return False
        if not loaded.attempted and remembered(ws).known:
            # Nothing was done since it was claimed.
            return False
        swept_at = loaded.node.swept_at if loaded.node else None
        return not is_recent(ws, swept_at, loaded.now, 2 * self.pace.idle)

    async def _waits_in_vain(self, workspace_id: WorkspaceId) -> bool:
        """Whether a worker of its node need not be waited for any longer. A node that is lost, but answers here, is
        only not heard by others: it will be again."""
        loaded = await self.store.load_now(workspace_id, self.node)
        if loaded is None:
            return True
        ws = loaded.workspace
        if ws.node is None or not self._is_lost(loaded):
            return False
        return ws.node != self.node or not (await self.runtime.observe(ws.id, probe=False)).known

    def _is_lost(self, loaded: Loaded) -> bool:
        """As the leader found it, or a person. One that never registered is none that anybody could reach."""
        node = loaded.node
        return node.lost or node.removed if node is not None else not self.serves(loaded.workspace)

    def _is_free(self, loaded: Loaded) -> bool:
        """Whether it need not go back to its node: the node is gone for good, or holds no home of it and takes none.
        What was under way there comes to its end first."""
        ws, node = loaded.workspace, loaded.node
        if ws.operation is not Operation.NONE:
            return False
        if node is not None and node.removed:
            return True
        return not has_home(ws) and (self._is_lost(loaded) or (node is not None and node.cordoned))

    async def _saved(
        self, loaded: Loaded, judgement: Judgement, decision: Decision, seen: Observation, attempt: int | None
    ) -> tuple[Workspace, Decision] | None:
        ws, now, op_id = loaded.workspace, loaded.now, self.new_id()
        if not is_placed(decision):
            row = apply(ws, judgement, decision, seen, now, op_id)
            if attempt is None and self._is_known(loaded, row):
                return row, decision
            saved = await self.store.save(ws, row, _message(decision), attempt=attempt, looked=self.serves(ws))
            return (row, decision) if saved else None
        node = self._obvious_place(loaded, decision)
        if node is not None:
            row = apply(ws, judgement, decision, seen, now, op_id, node)
            return (row, decision) if await self.store.save(ws, row, attempt=attempt) else None

        def applied(to: str | None, then: Decision) -> Workspace:
            return apply(ws, judgement, then, seen, now, op_id, to)

        return await Placing(self.store).save(ws, applied, decision, attempt)

    def _is_known(self, loaded: Loaded, row: Workspace) -> bool:
        """Whether there is nothing to save: a look at a workspace at rest finds what its row says, as a rule. That it
        was looked at is worth a write only for those who can't look, and where no sweep vouches for it."""
        ws = loaded.workspace
        if not says_nothing_new(ws, row):
            return False
        if not self.serves(ws):
            return True
        swept_at = loaded.node.swept_at if loaded.node else None
        others_ask = loaded.several and ws.phase in {Phase.STANDBY, Phase.RUNNING}
        recent = not others_ask or is_recent(ws, swept_at, loaded.now, 2 * self.pace.idle)
        return ws.observed_at is not None and recent

    def _obvious_place(self, loaded: Loaded, decision: Decision) -> str | None:
        """Where there is nothing to choose: the node that already counts it, or the only one there is."""
        own = loaded.workspace.node if decision.completed is not Operation.ARCHIVING else None
        if own is not None and not self._is_free(loaded):
            return own
        limited = loaded.node is not None and (loaded.node.capacity is not None or loaded.node.cordoned)
        return self.node if own is None and not loaded.several and not limited else None

    def _step(self, row: Workspace, decision: Decision, looks: int, loaded: Loaded) -> Step:
        status = Status(
            phase=row.phase,
            operation=row.operation,
            desired_state=row.desired_state,
            owner=row.owner_user_id,
            name=row.name,
            node=row.node,
            error_reason=row.error_reason,
            owner_name=loaded.owner_name,
        )
        match decision.action:
            case Action.GONE:
                return Step(StepKind.GONE, status)
            case Action.CLAIM | Action.RESUME if row.op_id is not None:
                timeout = self.timeouts[row.operation].total_seconds()
                queue = operations_queue(row.node or self.node)
                # The queue of its own workflow needs no name, and a worker that is alone needs no deadline for it.
                queue_given = None if queue == TASK_QUEUE and not loaded.several else queue
                # What needs no node goes to another queue as soon as nobody takes it from this one.
                turn = _TURN.total_seconds() if row.node is not None else 0
                return Step(
                    StepKind.RUN,
                    status,
                    row.operation,
                    row.op_id,
                    queue_given,
                    timeout_seconds=timeout,
                    turn_within_seconds=turn,
                )
            case Action.LOOK_AGAIN:
                wait = self.pace.look_again(looks).total_seconds()
                return Step(StepKind.WAIT, status, wait_seconds=wait, looking=True)
            case Action.PAUSE if decision.pause is not None:
                left = decision.pause.until - loaded.now
                return Step(StepKind.WAIT, status, wait_seconds=left.total_seconds())
        return Step(StepKind.WAIT, status, wait_seconds=self.pace.rest().total_seconds())


def _paced(latest: Sequence[Ended], now: datetime) -> Decision:
    """Whoever asked for it is not kept waiting, nor a container that ended once or twice."""
    pause = pause_before_start(latest, now)
    return START if pause is None else Decision(Action.PAUSE, pause=pause)


def _message(decision: Decision) -> str | None:
    return f"found while {decision.operation} was under way" if decision.action is Action.FAIL else None


def _tell(before: Workspace, after: Workspace, decision: Decision) -> None:
    if decision.pause is not None and not is_paused(before):
        pause = decision.pause
        log.warning("container_keeps_ending", workspace=after.id, starts=pause.starts, until=pause.until.isoformat())
    if before.phase is not after.phase or decision.action in {Action.CLAIM, Action.FAIL}:
        log.info(
            "reconciled",
            workspace=after.id,
            phase=after.phase,
            was=before.phase,
            desired_state=after.desired_state,
            operation=after.operation,
            operation_id=after.op_id,
            node=after.node,
            error_reason=after.error_reason,
        )
