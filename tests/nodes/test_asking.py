"""The workflow and its nodes: who is asked, and what happens when nobody answers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import uuid4

import pytest
from temporalio import activity
from temporalio.client import Client, WorkflowHandle
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from domain.model import WorkspaceId
from tests.workflows.script import GO_ON, GONE, STATUS, WAIT, Script, run_step
from workflows.messages import WAKE, ReconcileInput, Step, StepKind, WorkspaceInput
from workflows.workspace import WorkspaceWorkflow

ASK = Step(StepKind.ASK, STATUS, task_queue="node-b", taken_within_seconds=0.3)


@asynccontextmanager
async def started(
    client: Client, script: Script, *others: Worker, **options: int
) -> AsyncIterator[WorkflowHandle[WorkspaceWorkflow, None]]:
    queue = str(uuid4())
    async with script.worker(client, queue):
        for other in others:
            await other.__aenter__()
        try:
            yield await client.start_workflow(
                WorkspaceWorkflow.run, WorkspaceInput(WorkspaceId("w1"), **options), id=queue, task_queue=queue
            )
        finally:
            await asyncio.gather(*(other.shutdown() for other in others))


async def test_the_worker_of_the_node_is_asked_and_its_answer_counts(
    temporal_time_skipping: WorkflowEnvironment,
) -> None:
    """A worker that can't look has the node's look, and goes on with what that says."""
    asked: list[ReconcileInput] = []

    @activity.defn(name="reconcile")
    async def look(request: ReconcileInput) -> Step:
        asked.append(request)
        return GONE

    client = temporal_time_skipping.client
    script = Script([replace(ASK, taken_within_seconds=60)])
    async with started(client, script, Worker(client, task_queue="node-b", activities=[look])) as handle:
        await handle.result()
    assert (len(script.reconciles), len(asked)) == (1, 1)


async def test_a_node_that_does_not_answer_leaves_it_unknown(temporal_time_skipping: WorkflowEnvironment) -> None:
    """Nobody takes the question: the workflow is told that nothing was seen, and asks again after a while."""
    look = Step(StepKind.WAIT, STATUS, wait_seconds=1, looking=True)
    script = Script([ASK, look, ASK, WAIT, GONE])
    async with started(temporal_time_skipping.client, script) as handle:
        await handle.result()
    assert [request.unseen for request in script.reconciles] == [False, True, False, True, False]
    assert [request.looks for request in script.reconciles] == [0, 0, 1, 1, 0]


async def test_an_operation_that_no_worker_takes_is_reconciled_until_the_node_is_lost(
    temporal_time_skipping: WorkflowEnvironment,
) -> None:
    """A node with its hands full is no error of the workspace: only reconcile, which knows when the node was last
    heard of, gives the operation up."""
    step = replace(run_step(timeout=60), task_queue="node-b", taken_within_seconds=0.3)
    script = Script([step, step, step, step, step, WAIT, GONE])
    async with started(temporal_time_skipping.client, script) as handle:
        await handle.result()
    assert [request.resumed for request in script.reconciles] == [False, True, True, True, True, True, False]
    assert (script.attempts, script.failures) == (0, [])


FOR_HOURS = 3600.0


@pytest.mark.parametrize("step", [replace(run_step(), task_queue="node-b"), ASK], ids=["operation", "question"])
async def test_what_waits_for_its_turn_is_woken_when_the_node_is_lost(temporal_client: Client, step: Step) -> None:
    """Nobody takes it, for hours if need be. Each wake leads to a look at the node: it goes on waiting while the node
    lives, and with what comes instead when it is lost. Nothing fails, and nothing is left behind in the queue."""
    script = Script([replace(step, turn_within_seconds=FOR_HOURS), GO_ON, GO_ON, WAIT, GONE])
    async with started(temporal_client, script) as handle:
        for looks in (1, 2, 3):
            await script.until(lambda looks=looks: len(script.reconciles) >= looks)  # type: ignore[misc]
            await handle.signal(WAKE)
        await handle.result()
    # A wake is answered once more when the waiting is over: what it told of may have come too late for the look.
    assert [request.waiting for request in script.reconciles] == [False, True, True, True, False]
    assert (script.attempts, script.failures) == (0, [])
    assert not (await handle.describe()).raw_description.pending_activities


async def test_what_waited_for_its_turn_goes_on_with_what_came_of_it(temporal_client: Client) -> None:
    """Woken while it waited, and then taken by a worker of its node: it is done once, and its answer counts."""

    async def operate(_: int) -> Step:
        return GONE

    queue = f"node-{uuid4()}"
    script = Script([replace(run_step(), task_queue=queue, turn_within_seconds=FOR_HOURS), GO_ON], operate)
    async with started(temporal_client, script) as handle:
        await script.until(lambda: len(script.reconciles) == 1)
        await handle.signal(WAKE)
        await script.until(lambda: len(script.reconciles) == 2)
        async with Worker(temporal_client, task_queue=queue, activities=[script.starting]):
            await handle.result()
    assert (len(script.reconciles), script.attempts) == (2, 1)


async def test_a_turn_is_no_part_of_the_timeout(temporal_client: Client) -> None:
    """It comes when the operation's whole timeout has gone by, and there is all of it left."""

    async def operate(_: int) -> Step:
        return GONE

    queue = f"node-{uuid4()}"
    script = Script([replace(run_step(timeout=1), task_queue=queue, turn_within_seconds=FOR_HOURS)], operate)
    async with started(temporal_client, script) as handle:
        await script.until(lambda: len(script.reconciles) == 1)
        await asyncio.sleep(2)
        async with Worker(temporal_client, task_queue=queue, activities=[script.starting]):
            await handle.result()
    assert (len(script.reconciles), script.attempts, script.failures) == (1, 1, [])


async def test_a_history_stays_short_while_its_operation_waits(temporal_client: Client) -> None:
    """However often its turn does not come: it continues as new, and goes on waiting for the same operation."""
    step = replace(run_step(), task_queue="node-b", turn_within_seconds=0.2)
    script = Script([step] * 30 + [GONE])
    async with started(temporal_client, script, history_limit=40) as handle:
        latest = temporal_client.get_workflow_handle(handle.id)
        await latest.result()
        described = await latest.describe()
    assert described.run_id != handle.first_execution_run_id
    assert described.history_length < 80
    assert script.failures == []
