"""PROMISE 7: every recorded history replays with the workflow code of today.

The files in `histories/` were recorded by this test with RECORD=1, on a real Temporal server. Add to them when the
workflow learns something; never record over one: a running workspace may still have that history.
"""

import asyncio
import os
import re
from base64 import b64decode
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Replayer, Worker

from activities.attempt import Attempt
from adapters.memory.runtime import MemoryRuntime
from domain.errors import ActionFailed
from domain.model import DesiredState, Operation, Phase, WorkspaceId
from domain.naming import workflow_id
from settings import Settings
from tests.integration.system import System, system
from tests.resources import resources
from tests.workflows.script import GO_ON, GONE, LOST_AFTER, WAIT, Script, run_step
from workflows.messages import TASK_QUEUE, WAKE, Step, WorkspaceInput
from workflows.registry import sandbox
from workflows.verify import has_begun
from workflows.workspace import WorkspaceWorkflow

HISTORIES = Path(__file__).parent / "histories"


def replayer() -> Replayer:
    return Replayer(
        workflows=[WorkspaceWorkflow],
        workflow_runner=sandbox(),
    )


@pytest.mark.parametrize("path", sorted(HISTORIES.glob("*.json")), ids=lambda path: path.stem)
async def test_recorded_history_replays(path: Path) -> None:
    """PROMISE 7."""
    workflow, _, _ = path.stem.partition("--")
    await replayer().replay_workflow(WorkflowHistory.from_json(workflow, path.read_text()))


async def test_there_are_recorded_histories() -> None:
    """PROMISE 7: of a whole life, of failures, of a run that was continued and of its continuation, and each is what
    its name says.
    """
    texts = {path.stem: path.read_text() for path in HISTORIES.glob("*.json")}
    assert {"life", "asked", "failures", "timeout", "unreachable"} <= set(texts)
    assert '"EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW"' in texts["continuing"]
    assert '"continuedExecutionRunId"' in texts["continued"]
    assert '"TIMEOUT_TYPE_HEARTBEAT"' in texts["lost_worker"]
    assert '"EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED"' in texts["waited"]
    # A former version, with the steps of this one, as during an upgrade: it did not heed the wake.
    assert '"turn_within_seconds"' in _payloads(texts["mixed"])
    assert '"EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED"' in texts["mixed"]
    assert "core_patch" not in texts["mixed"]


def _payloads(history: str) -> str:
    """What activities and signals said."""
    found = re.findall(r'"data": "([^"]+)"', history)
    return "".join(b64decode(data).decode() for data in found)


@pytest.fixture
async def start(temporal_client: Client, database_url: str) -> AsyncIterator[Callable[..., object]]:
    async with AsyncExitStack() as stack:

        async def started(**options: object) -> System:
            running = system(temporal_client, database_url, MemoryRuntime(), "image", **options)  # type: ignore[arg-type]
            return await stack.enter_async_context(running)

        yield started


async def check(client: Client, workspace: str, name: str, run: str | None = None) -> None:
    handle = client.get_workflow_handle(workflow_id(workspace), run_id=run)  # type: ignore[arg-type]
    async with asyncio.timeout(60):
        # The server makes a run that was continued twice within a second wait for its first task.
        while not has_begun(history := await handle.fetch_history()):
            await asyncio.sleep(0.1)
    await replayer().replay_workflow(history)
    if os.environ.get("RECORD"):
        HISTORIES.mkdir(exist_ok=True)
        (HISTORIES / f"{name}.json").write_text(history.to_json())


async def test_a_whole_life(start: Callable[..., object], temporal_client: Client) -> None:
    """PROMISE 7: what is recorded now replays now."""
    running: System = await start()  # type: ignore[misc]
    workspace = await running.create()
    await running.until_phase(workspace, Phase.RUNNING)
    await running.want(workspace, DesiredState.STANDBY)
    await running.until_phase(workspace, Phase.STANDBY)
    await running.want(workspace, DesiredState.RUNNING)
    await running.until_phase(workspace, Phase.RUNNING)
    await running.delete(workspace)
    await running.until_phase(workspace, Phase.DELETED)
    await temporal_client.get_workflow_handle(workflow_id(workspace)).result()
    await check(temporal_client, workspace, "life")


async def test_failures_and_recover(start: Callable[..., object], temporal_client: Client) -> None:
    broken = True

    async def begin(attempt: Attempt) -> None:
        if broken:
            raise ActionFailed("not yet")
        await running.runtime.start(attempt.workspace.id, attempt.workspace.image_ref, attempt.op_id)

    def actuators(runtime: MemoryRuntime) -> object:
        return {**resources(runtime).by_operation(), Operation.STARTING: begin}

    running: System = await start(actuators=actuators)  # type: ignore[misc]
    workspace = await running.create()
    await running.until_phase(workspace, Phase.ERROR)
    broken = False
    await running.recover(workspace)
    await running.until_phase(workspace, Phase.RUNNING)
    await check(temporal_client, workspace, "failures")


async def test_a_timeout(start: Callable[..., object], temporal_client: Client) -> None:
    async def hang(_: Attempt) -> None:
        await asyncio.Event().wait()

    def actuators(runtime: MemoryRuntime) -> object:
        return {**resources(runtime).by_operation(), Operation.STARTING: hang}

    running: System = await start(actuators=actuators, settings=Settings(reconciler_starting_timeout=1))  # type: ignore[misc]
    workspace = await running.create()
    await running.until_phase(workspace, Phase.ERROR)
    await check(temporal_client, workspace, "timeout")


async def test_an_engine_that_does_not_answer(start: Callable[..., object], temporal_client: Client) -> None:
    running: System = await start()  # type: ignore[misc]
    workspace = await running.create(DesiredState.STANDBY)
    await running.until_phase(workspace, Phase.STANDBY)
    assert isinstance(running.runtime, MemoryRuntime)
    running.runtime.unreachable = True
    await running.want(workspace, DesiredState.RUNNING)
    await running.until(workspace, lambda ws: ws.desired_state is DesiredState.RUNNING)
    running.runtime.unreachable = False
    await running.until_phase(workspace, Phase.RUNNING)
    await check(temporal_client, workspace, "unreachable")


async def test_a_run_that_is_continued(start: Callable[..., object], temporal_client: Client) -> None:
    """Both what ends by continuing as new, and what begins so."""
    running: System = await start()  # type: ignore[misc]
    workspace = await running.insert()
    handle = await temporal_client.start_workflow(
        WorkspaceWorkflow.run,
        WorkspaceInput(workspace, history_limit=15),
        id=workflow_id(workspace),
        task_queue=TASK_QUEUE,
    )
    await running.until_phase(workspace, Phase.RUNNING)
    latest = temporal_client.get_workflow_handle(handle.id)
    pause = 0.3
    async with asyncio.timeout(60):
        while (await latest.describe()).run_id == handle.first_execution_run_id:
            await running.wake(workspace)
            # The server takes no continue-as-new while there are signals that the workflow has not seen: however slow
            # this machine is, the pause is long enough in the end.
            await asyncio.sleep(pause)
            pause *= 1.3
    await running.want(workspace, DesiredState.STANDBY)
    await running.until_phase(workspace, Phase.STANDBY)
    await check(temporal_client, workspace, "continuing", handle.first_execution_run_id)
    await check(temporal_client, workspace, "continued")


async def test_an_operation_that_lost_its_worker(temporal_client: Client) -> None:
    """For all of its time: it is taken up again, and nothing fails."""

    async def operate(_: int) -> Step:
        if len(script.reconciles) == 1:
            await asyncio.Event().wait()
        return GONE

    script = Script([run_step(timeout=3, heartbeat=LOST_AFTER)], operate)
    workspace = WorkspaceId("lost")
    async with script.worker(temporal_client, TASK_QUEUE):
        await temporal_client.execute_workflow(
            WorkspaceWorkflow.run, WorkspaceInput(workspace), id=workflow_id(workspace), task_queue=TASK_QUEUE
        )
    assert [request.resumed for request in script.reconciles] == [False, True]
    assert script.failures == []
    await check(temporal_client, workspace, "lost_worker")


async def test_an_operation_that_waits_for_its_turn(temporal_client: Client) -> None:
    """Woken while it waits, it goes on waiting and is done; the next one is given up, its node is lost."""
    here, there = (replace(run_step(), task_queue=f"node-{name}", turn_within_seconds=3600) for name in "bc")

    async def operate(_: int) -> Step:
        return there

    script = Script([here, GO_ON, WAIT, GONE], operate)
    workspace = WorkspaceId("waits")
    async with script.worker(temporal_client, TASK_QUEUE):
        handle = await temporal_client.start_workflow(
            WorkspaceWorkflow.run, WorkspaceInput(workspace), id=workflow_id(workspace), task_queue=TASK_QUEUE
        )
        await script.until(lambda: len(script.reconciles) == 1)
        await handle.signal(WAKE)
        await script.until(lambda: len(script.reconciles) == 2)
        async with Worker(temporal_client, task_queue="node-b", activities=[script.starting]):
            await script.until(lambda: script.attempts == 1)
        await handle.signal(WAKE)
        await handle.result()
    await check(temporal_client, workspace, "waited")
