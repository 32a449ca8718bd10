"""The workflow and its nodes, on the time-skipping server: who is asked, and what happens when nobody answers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import uuid4

from temporalio import activity
from temporalio.client import Client, WorkflowHandle
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from domain.model import WorkspaceId
from tests.workflows.script import GONE, STATUS, WAIT, Script, run_step
from workflows.messages import ReconcileInput, Step, StepKind, WorkspaceInput
from workflows.workspace import WorkspaceWorkflow

ASK = Step(StepKind.ASK, STATUS, task_queue="node-b", taken_within_seconds=0.3)


@asynccontextmanager
async def started(
    client: Client, script: Script, *others: Worker
) -> AsyncIterator[WorkflowHandle[WorkspaceWorkflow, None]]:
    queue = str(uuid4())
    async with script.worker(client, queue):
        for other in others:
            await other.__aenter__()
        try:
            yield await client.start_workflow(
                WorkspaceWorkflow.run, WorkspaceInput(WorkspaceId("w1")), id=queue, task_queue=queue
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
