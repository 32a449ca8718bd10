"""The workspace entity: one workflow for the life of a workspace, that makes reality follow desired_state.

It decides nothing itself: `reconcile` observes, judges, plans and saves in one transaction and returns the next Step,
so that the rules can change without breaking the replay of running workflows.
"""

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
        self.looks = 0
        self.shown: Status | None = None

    @workflow.signal(name=WAKE)
    def wake(self) -> None:
        self.woken = True

    @workflow.query
    def status(self) -> Status | None:
        return self.shown

    @workflow.run
    async def run(self, start: WorkspaceInput) -> None:
        step = await self._reconcile()
        while step.kind is not StepKind.GONE:
            self._show(step.status)
            if step.kind is StepKind.RUN:
                step = await self._answered(await self._operate(step))
                continue
            await self._wait(step)
            if self._history_is_long():
                # The next run begins with a reconcile, which answers every wake received so far.
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(start)
            step = await self._reconcile()
        self._show(step.status)

    async def _reconcile(self, *, resumed: bool = False) -> Step:
        # Cleared before the row is read: a wake that arrives meanwhile leads to one more reconcile, never to none.
        self.woken = False
        step = await self._answered(await self._reconcile_here(resumed=resumed))
        self.looks = self.looks + 1 if step.looking else 0
        return step

    async def _reconcile_here(self, *, resumed: bool = False, unseen: bool = False) -> Step:
        step: Step = await workflow.execute_local_activity(
            RECONCILE,
            ReconcileInput(self.start.workspace_id, self.looks, resumed, unseen),
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
        try:
            answer: Step = await workflow.execute_activity(
                RECONCILE,
                ReconcileInput(self.start.workspace_id, self.looks),
                result_type=Step,
                task_queue=step.task_queue,
                schedule_to_start_timeout=timedelta(seconds=step.taken_within_seconds),
                start_to_close_timeout=timedelta(seconds=20),
                retry_policy=RetryPolicy(maximum_attempts=2),
                summary=f"ask {step.task_queue}",
            )
        except ActivityError:
            return await self._reconcile_here(unseen=True)
        # It moved to another node meanwhile.
        return answer if answer.kind is not StepKind.ASK else await self._reconcile_here(unseen=True)

    async def _operate(self, step: Step) -> Step:
        lost = 0
        while True:
            began = workflow.now()
            try:
                return await self._run_operation(step)
            except ActivityError as error:
                elapsed = workflow.now() - began
                failure = failure_of(error, timedelta(seconds=step.timeout_seconds), elapsed)
            lost += int(failure.worker_lost)
            if lost == MAX_LOST or not (failure.worker_lost or failure.not_taken):
                await self._fail(step, failure)
                break
            following = await self._reconcile(resumed=True)
            if following.op_id != step.op_id:
                return following
            step = following
        return await self._reconcile()

    async def _run_operation(self, step: Step) -> Step:
        """The operation as an activity: it acts, observes what it did, saves, and returns what comes next."""
        taken_within = timedelta(seconds=step.taken_within_seconds)
        following: Step = await workflow.execute_activity(
            step.operation,
            OperateInput(self.start.workspace_id, step.op_id),
            result_type=Step,
            task_queue=step.task_queue,
            schedule_to_start_timeout=taken_within if step.task_queue is not None else None,
            schedule_to_close_timeout=timedelta(seconds=step.timeout_seconds),
            heartbeat_timeout=timedelta(seconds=step.heartbeat_seconds),
            retry_policy=_OPERATION_RETRY,
            summary=self._summary(step),
        )
        return following

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

    def _history_is_long(self) -> bool:
        info = workflow.info()
        return info.is_continue_as_new_suggested() or info.get_current_history_length() > self.start.history_limit
