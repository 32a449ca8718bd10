"""Whether this version can go on with the histories that are live now: replay each, before a worker has to."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHistory
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Replayer

from workflows.registry import WORKFLOWS, sandbox

LIVE = "ExecutionStatus = 'Running'"


@dataclass(frozen=True, slots=True)
class Replayed:
    workflow_id: str
    run_id: str
    workflow_type: str
    events: int
    error: str | None = None
    """Why this version can't go on with it."""


async def replay_running(client: Client, types: list[type] | None = None) -> AsyncIterator[Replayed]:
    replayer = Replayer(
        workflows=types or WORKFLOWS,
        workflow_runner=sandbox(),
        namespace=client.namespace,
        data_converter=client.data_converter,
    )
    async for execution in client.list_workflows(LIVE, page_size=500):
        handle = client.get_workflow_handle(execution.id, run_id=execution.run_id)
        try:
            history = await handle.fetch_history()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                # It ended between the listing and now.
                continue
            raise
        failure = None
        if has_begun(history):
            failure = (await replayer.replay_workflow(history, raise_on_replay_failure=False)).replay_failure
        yield Replayed(
            execution.id,
            execution.run_id,
            execution.workflow_type,
            len(history.events),
            f"{type(failure).__name__}: {failure}" if failure else None,
        )


def has_begun(history: WorkflowHistory) -> bool:
    """Whether the workflow's code has run yet: a run that was just continued may wait a second for its first task.

    Where it has not, there is nothing to replay, and the replayer would wait for it forever.
    """
    return any(event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED for event in history.events)
