"""The workspace entity, on the time-skipping server: what it does with each Step, failure and wake."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest
from temporalio import activity
from temporalio.client import Client, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment

from domain.model import ErrorReason, WorkspaceId
from tests.workflows.script import GONE, LOST_AFTER, STATUS, WAIT, Script, run_step
from workflows.messages import WAKE, ReconcileInput, Status, Step, WorkspaceInput
from workflows.workspace import MAX_LOST, WorkspaceWorkflow


@asynccontextmanager
async def started(
    client: Client, script: Script, **options: int
) -> AsyncIterator[WorkflowHandle[WorkspaceWorkflow, None]]:
    queue = str(uuid4())
    async with script.worker(client, queue):
        yield await client.start_workflow(
            WorkspaceWorkflow.run, WorkspaceInput(WorkspaceId("w1"), **options), id=queue, task_queue=queue
        )


async def test_runs_the_operation_and_goes_on_with_the_step_it_returns(
    temporal_time_skipping: WorkflowEnvironment,
) -> None:
    """An operation returns what comes next: no reconcile in between."""

    async def operate(_: int) -> Step:
        return GONE

    script = Script([run_step()], operate)
    async with started(temporal_time_skipping.client, script) as handle:
        await handle.result()
    assert (len(script.reconciles), script.attempts, script.failures) == (1, 1, [])


async def test_a_wake_leads_to_a_reconcile_at_once(temporal_time_skipping: WorkflowEnvironment) -> None:
    script = Script([WAIT, GONE])
    async with started(temporal_time_skipping.client, script) as handle:
        await script.until(lambda: len(script.reconciles) == 1)
        await handle.signal(WAKE)
        await handle.result()
    assert len(script.reconciles) == 2


async def test_the_safety_timer_reconciles_without_a_wake(temporal_time_skipping: WorkflowEnvironment) -> None:
    """A lost wake costs time, not correctness."""
    script = Script([WAIT, WAIT, GONE])
    async with started(temporal_time_skipping.client, script) as handle:
        await handle.result()
    assert len(script.reconciles) == 3


async def test_failed_attempts_are_retried_and_a_final_one_fails_the_operation(
    temporal_time_skipping: WorkflowEnvironment,
) -> None:
    """Temporal's retry policy runs the attempts; the one that says so is the last."""

    async def operate(attempt: int) -> Step:
        raise ApplicationError(f"attempt {attempt}", type="ActionFailed", non_retryable=attempt == 3)

    script = Script([run_step(), GONE], operate)
    async with started(temporal_time_skipping.client, script) as handle:
        await handle.result()
    assert script.attempts == 3
    (failure,) = script.failures
    assert (failure.reason, failure.message) == (ErrorReason.ACTION_FAILED, "attempt 3")


async def test_a_failure_of_no_known_class_is_retry_exceeded(temporal_time_skipping: WorkflowEnvironment) -> None:
    async def operate(_: int) -> Step:
        raise ApplicationError("odd", type="Surprise", non_retryable=True)

    script = Script([run_step(), GONE], operate)
    async with started(temporal_time_skipping.client, script) as handle:
        await handle.result()
    assert [failure.reason for failure in script.failures] == [ErrorReason.RETRY_EXCEEDED]


async def test_an_operation_that_takes_too_long_is_a_timeout(temporal_time_skipping: WorkflowEnvironment) -> None:
    """A worker that lives and heartbeats, and an operation that does not end: Timeout, at once."""

    async def operate(_: int) -> Step:
        while True:
            activity.heartbeat()
            await asyncio.sleep(0.02)

    script = Script([run_step(timeout=5), GONE], operate)
    async with started(temporal_time_skipping.client, script) as handle:
        await handle.result()
    assert [failure.reason for failure in script.failures] == [ErrorReason.TIMEOUT]


async def test_attempts_lost_with_their_worker_are_no_errors(temporal_time_skipping: WorkflowEnvironment) -> None:
    """No heartbeat: the attempt is run again, more often than errors may be, and nothing fails."""

    async def operate(attempt: int) -> Step:
        if attempt <= 4:
            await asyncio.Event().wait()
        return GONE

    # Long enough for the one that is not lost.
    script = Script([run_step(timeout=600, heartbeat=2)], operate)
    async with started(temporal_time_skipping.client, script) as handle:
        await handle.result()
    assert (script.attempts, script.failures) == (5, [])


async def test_an_operation_that_always_loses_its_worker_ends_in_timeout(
    temporal_time_skipping: WorkflowEnvironment,
) -> None:
    """Time without a worker is not the operation's, but what kills every worker is its own fault in the end."""

    async def operate(_: int) -> Step:
        return await asyncio.Event().wait()  # type: ignore[return-value]

    script = Script([run_step(timeout=5, heartbeat=LOST_AFTER)] * MAX_LOST + [GONE], operate)
    async with started(temporal_time_skipping.client, script) as handle:
        await handle.result()
    assert [request.resumed for request in script.reconciles] == [False, True, True, False]
    assert [failure.reason for failure in script.failures] == [ErrorReason.TIMEOUT]


async def test_looks_are_counted_while_something_cannot_be_observed(
    temporal_time_skipping: WorkflowEnvironment,
) -> None:
    look = Step(WAIT.kind, STATUS, wait_seconds=1, looking=True)
    script = Script([look, look, look, WAIT, GONE])
    async with started(temporal_time_skipping.client, script) as handle:
        await handle.result()
    assert [request.looks for request in script.reconciles] == [0, 1, 2, 3, 0]


async def test_status_query_answers_what_was_last_saved(temporal_time_skipping: WorkflowEnvironment) -> None:
    script = Script([WAIT])
    async with started(temporal_time_skipping.client, script) as handle:
        await script.until(lambda: len(script.reconciles) == 1)
        shown: Status | None = await handle.query("status", result_type=Status)
        assert shown == STATUS
        await handle.terminate()


async def test_history_stays_short(temporal_time_skipping: WorkflowEnvironment) -> None:
    """Beyond its limit it continues as new, and goes on waiting for wakes."""
    script = Script([WAIT] * 40 + [GONE])
    async with started(temporal_time_skipping.client, script, history_limit=40) as handle:
        first = handle.first_execution_run_id
        await handle.result()
    described = await temporal_time_skipping.client.get_workflow_handle(handle.id).describe()
    assert described.run_id != first
    assert described.history_length < 80
    assert len(script.reconciles) == 41


@pytest.mark.parametrize("signals", [100, pytest.param(1000, marks=pytest.mark.full)])
async def test_no_wake_is_lost_over_continue_as_new(temporal_client: Client, signals: int) -> None:
    """PROMISE 8: signals during repeated continue-as-new: after the last one there is a reconcile that began later."""
    script = Script([WAIT])
    sent = 0
    seen_at: list[int] = []
    inner = script.reconcile

    @activity.defn(name="reconcile")
    async def reconcile(request: ReconcileInput) -> Step:
        seen_at.append(sent)
        return await inner(request)

    script.reconcile = reconcile  # type: ignore[method-assign]
    async with started(temporal_client, script, history_limit=15) as handle:
        for _ in range(signals):
            sent += 1
            await handle.signal(WAKE)
            if sent % 20 == 0:
                # The last of each burst, too, may come at the wrong moment.
                await script.until(lambda burst=sent: seen_at[-1:] == [burst], 60)  # type: ignore[misc]
        await script.until(lambda: seen_at[-1:] == [signals], 60)
        described = await temporal_client.get_workflow_handle(handle.id).describe()
        assert described.run_id != handle.first_execution_run_id
        await temporal_client.get_workflow_handle(handle.id).terminate()
