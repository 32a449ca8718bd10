"""The workspace entity: one workflow for the life of a workspace, that makes reality follow desired_state.

It decides nothing itself: `reconcile` observes, judges, plans and saves in one transaction and returns the next Step,
so that the rules can change without breaking the replay of running workflows.
"""

from contextlib import suppress
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy, SearchAttributeKey
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from workflows.failures import Failure, failure_of
    from workflows.messages import (
        FAIL,
        RECONCILE,
        WAKE,
        WORKSPACE_WORKFLOW,
        FailInput,
        OperateInput,
        ReconcileInput,
        Status,
        Step,
        StepKind,
        WorkspaceInput,
    )

MAX_LOST = 3
"""How often an operation may lose its worker for its whole timeout: more is taken for its own fault."""

TURNS = 3
"""How often an operation may wait for its turn: once for each attempt, as a rule."""

HEEDS_WAKES = "heeds-wakes-while-it-waits"
"""A worker of a version without it hears of a lost node by asking again every few seconds."""

_RETRY_FOREVER = RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=10))
# No maximum_attempts: an attempt that dies with its worker is no error of the workspace. The activity counts
# real failures in error_count, the third one is not retryable, and it says itself how long to wait before the next.
# So this interval is for workers that died and databases that were away, and doesn't grow with how often.
_OPERATION_RETRY = RetryPolicy(initial_interval=timedelta(seconds=1), backoff_coefficient=1.0)

_PHASE = SearchAttributeKey.for_keyword("Phase")
_OPERATION = SearchAttributeKey.for_keyword("Operation")
_DESIRED = SearchAttributeKey.for_keyword("DesiredState")
_OWNER = SearchAttributeKey.for_keyword("Owner")
_NODE = SearchAttributeKey.for_keyword("Node")


@workflow.defn(name=WORKSPACE_WORKFLOW)
class WorkspaceWorkflow:
    @workflow.init
    def __init__(self, start: WorkspaceInput) -> None:
        self.start = start
        self.woken = False
        self.stirred = False
        self.looks = 0
        self.shown: Status | None = None

    @workflow.signal(name=WAKE)
    def wake(self) -> None:
        self.woken = True
        self.stirred = True

    @workflow.query
    def status(self) -> Status | None:
        return self.shown

    @workflow.run
    async def run(self, _start: WorkspaceInput) -> None:
        step = await self._reconcile()
        while step.kind is not StepKind.GONE:
            self._show(step.status)
            if step.kind is StepKind.RUN:
                step = await self._answered(await self._operate(step))
                continue
            await self._wait(step)
            await self._keep_history_short()
            step = await self._reconcile()
        self._show(step.status)

    async def _reconcile(self, *, resumed: bool = False) -> Step:
        # Cleared before the row is read: a wake that arrives meanwhile leads to one more reconcile, never to none.
        self.woken = False
        step = await self._answered(await self._reconcile_here(resumed=resumed))
        self.looks = self.looks + 1 if step.looking else 0
        return step

    async def _reconcile_here(self, *, resumed: bool = False, unseen: bool = False, waiting: bool = False) -> Step:
        self.stirred = False
        step: Step = await workflow.execute_local_activity(
            RECONCILE,
            ReconcileInput(self.start.workspace_id, self.looks, resumed, unseen, waiting),
            result_type=Step,
            start_to_close_timeout=timedelta(seconds=20),
            retry_policy=_RETRY_FOREVER,
            summary="observe, judge, decide, save",
        )
        return step

    async def _answered(self, step: Step) -> Step:
        """What has to be looked at is looked at by the worker of its node."""
        if step.kind is not StepKind.ASK:
            return step
        turn_within = _turn_within(step)
        asked: workflow.ActivityHandle[Step] = workflow.start_activity(
            RECONCILE,
            ReconcileInput(self.start.workspace_id, self.looks),
            result_type=Step,
            task_queue=step.task_queue,
            schedule_to_start_timeout=turn_within or timedelta(seconds=step.taken_within_seconds),
            start_to_close_timeout=timedelta(seconds=20),
            retry_policy=RetryPolicy(maximum_attempts=2),
            summary=f"ask {step.task_queue}",
        )
        try:
            answer = await (self._heard_of(asked) if turn_within else asked)
        except ActivityError:
            return await self._reconcile_here(unseen=True)
        # It moved to another node meanwhile.
        return answer if answer.kind is not StepKind.ASK else await self._reconcile_here(unseen=True)

    async def _heard_of(self, doing: workflow.ActivityHandle[Step]) -> Step:
        """What the worker of its node makes of it. It waits for its turn there, but not for a node that is lost: who
        finds that out wakes it."""
        while True:
            await workflow.wait_condition(lambda: self.stirred or doing.done())
            if doing.done():
                return await doing
            instead = await self._reconcile_here(waiting=True)
            if instead.kind is StepKind.ASK:
                continue
            overtaken = doing.done()
            doing.cancel()
            with suppress(ActivityError):
                await doing
            # What was done in the last moment may be more than `instead` knows of.
            return await self._reconcile_here() if overtaken else instead

    async def _operate(self, step: Step) -> Step:
        lost = 0
        while True:
            timeout, turn_within = timedelta(seconds=step.timeout_seconds), _turn_within(step)
            limit, began = timeout + TURNS * turn_within, workflow.now()
            try:
                return await self._run_operation(step, turn_within, limit)
            except ActivityError as error:
                failure = failure_of(error, timeout, overdue=workflow.now() - began - limit)
            lost += int(failure.worker_lost)
            if lost == MAX_LOST or not (failure.worker_lost or failure.not_taken):
                await self._fail(step, failure)
                break
            following = await self._reconcile(resumed=True)
            if following.op_id != step.op_id:
                return following
            if turn_within and failure.not_taken:
                await self._keep_history_short()
            step = following
        return await self._reconcile()

    async def _run_operation(self, step: Step, turn_within: timedelta, limit: timedelta) -> Step:
        """The operation as an activity: it acts, observes what it did, saves, and returns what comes next. It keeps its
        timeout itself, from its first attempt on; `limit` is for what does not."""
        taken_within = timedelta(seconds=step.taken_within_seconds) if step.task_queue is not None else None
        doing: workflow.ActivityHandle[Step] = workflow.start_activity(
            step.operation,
            OperateInput(self.start.workspace_id, step.op_id),
            result_type=Step,
            task_queue=step.task_queue,
            schedule_to_start_timeout=turn_within or taken_within,
            schedule_to_close_timeout=limit,
            heartbeat_timeout=timedelta(seconds=step.heartbeat_seconds),
            retry_policy=_OPERATION_RETRY,
            summary=self._summary(step),
        )
        return await (self._heard_of(doing) if turn_within else doing)

    async def _fail(self, step: Step, failure: Failure) -> None:
        await workflow.execute_local_activity(
            FAIL,
            FailInput(self.start.workspace_id, step.op_id, failure.reason, failure.message),
            start_to_close_timeout=timedelta(seconds=20),
            retry_policy=_RETRY_FOREVER,
            summary=f"{step.operation} failed: {failure.reason}",
        )

    async def _wait(self, step: Step) -> None:
        try:
            await workflow.wait_condition(
                lambda: self.woken, timeout=timedelta(seconds=step.wait_seconds), timeout_summary="safety timer"
            )
        except TimeoutError:
            return

    def _show(self, status: Status | None) -> None:
        if status is None or status == self.shown:
            return
        self.shown = status
        workflow.upsert_search_attributes(
            [
                _PHASE.value_set(status.phase),
                _OPERATION.value_set(status.operation),
                _DESIRED.value_set(status.desired_state),
                _OWNER.value_set(status.owner),
                _NODE.value_set(status.node or ""),
            ]
        )
        self._introduce(status)

    def _introduce(self, status: Status) -> None:
        """For people who look at the Temporal UI: whose workspace this is, and where it stands."""
        whose = {"name": status.name, "owner": status.owner_name}
        if status.owner_name and whose != {key: workflow.memo_value(key, "") for key in whose}:
            workflow.upsert_memo(whose)
        workflow.set_current_details(
            f"### {status.name}\n\n"
            f"workspace of {status.owner_name or status.owner}\n\n"
            f"- phase: **{status.phase}**\n- desired state: **{status.desired_state}**\n"
            f"- operation: **{status.operation}**\n- node: **{status.node or 'none'}**\n"
            f"- error: **{status.error_reason or 'none'}**"
        )

    def _summary(self, step: Step) -> str:
        """Beside the activity's name, which is the operation."""
        if self.shown is None:
            return step.operation
        return f"{self.shown.name} of {self.shown.owner_name}" if self.shown.owner_name else self.shown.name

    async def _keep_history_short(self) -> None:
        """Continue as new if it is long: the next run begins with a reconcile, which answers every wake so far and goes
        on with an operation that waits for its turn."""
        info = workflow.info()
        if info.is_continue_as_new_suggested() or info.get_current_history_length() > self.start.history_limit:
            await workflow.wait_condition(workflow.all_handlers_finished)
            workflow.continue_as_new(self.start)


def _turn_within(step: Step) -> timedelta:
    """How long it may wait for its turn at its node; zero in a run that would not hear of the node's loss meanwhile.

    Asked only where a step has such a time: what was recorded before there was one says nothing about the rest of its
    run, which goes on as a new one would.
    """
    heeds = step.turn_within_seconds > 0 and workflow.patched(HEEDS_WAKES)
    return timedelta(seconds=step.turn_within_seconds if heeds else 0)
