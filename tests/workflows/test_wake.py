"""How a workflow is told to look: by a signal where there is one, and started where there is none."""

from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import (
    Client,
    Interceptor,
    OutboundInterceptor,
    SignalWorkflowInput,
    StartWorkflowInput,
    WorkflowExecutionStatus,
    WorkflowHandle,
)

from domain.model import WorkspaceId
from domain.naming import workflow_id
from workflows.client import Waker


class Calls(Interceptor):
    """What is asked of Temporal."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002 - its name
        return _Noting(next, self.made)


class _Noting(OutboundInterceptor):
    def __init__(self, following: OutboundInterceptor, made: list[str]) -> None:
        super().__init__(following)
        self._made = made

    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:  # noqa: A002
        self._made.append("start" if input.start_signal else "start without a signal")
        return await super().start_workflow(input)

    async def signal_workflow(self, input: SignalWorkflowInput) -> None:  # noqa: A002
        self._made.append("signal")
        await super().signal_workflow(input)


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
def waker(temporal_client: Client, calls: Calls) -> Waker:
    """Nobody works on its queue: what is started stays as it is."""
    config = temporal_client.config()
    config["interceptors"] = [*config["interceptors"], calls]
    return Waker(Client(**config), f"nobody-{uuid4()}")


async def test_one_that_runs_is_signalled_and_no_more(waker: Waker, calls: Calls) -> None:
    """What is created has no workflow yet: it is started and signalled in one call."""
    workspace = WorkspaceId(str(uuid4()))
    await waker.start(workspace)
    run = await _run(waker, workspace)
    await waker.wake(workspace)
    assert calls.made == ["start", "signal"]
    assert await _run(waker, workspace) == run
    assert await _signals(waker, workspace) == 2


@pytest.mark.parametrize("before", ["never", "terminated"])
async def test_one_that_is_missing_is_started(waker: Waker, before: str) -> None:
    workspace = WorkspaceId(str(uuid4()))
    if before == "terminated":
        await waker.start(workspace)
        await waker.client.get_workflow_handle(workflow_id(workspace)).terminate()
    await waker.wake(workspace)
    assert (await _run(waker, workspace))[1] is WorkflowExecutionStatus.RUNNING
    assert await _signals(waker, workspace) == 1


async def _run(waker: Waker, workspace: WorkspaceId) -> tuple[str | None, WorkflowExecutionStatus | None]:
    found = await waker.client.get_workflow_handle(workflow_id(workspace)).describe()
    return found.run_id, found.status


async def _signals(waker: Waker, workspace: WorkspaceId) -> int:
    history = await waker.client.get_workflow_handle(workflow_id(workspace)).fetch_history()
    return sum(event.HasField("workflow_execution_signaled_event_attributes") for event in history.events)
