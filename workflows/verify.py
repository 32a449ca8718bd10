"""Whether this version can go on with the histories that are live now: replay each, before a worker has to."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Replayer

from workflows.registry import WORKFLOWS, workflow_runner

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
        workflow_runner=workflow_runner(),
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
        result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
        failure = result.replay_failure
        yield Replayed(
            execution.id,
            execution.run_id,
            execution.workflow_type,
            len(history.events),
            f"{type(failure).__name__}: {failure}" if failure else None,
        )
