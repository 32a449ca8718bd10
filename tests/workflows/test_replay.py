"""PROMISE 7: every recorded history replays with the workflow code of today.

The files in `histories/` were recorded by this test with RECORD=1, on a real Temporal server. Add to them when the
workflow learns something; never record over one: a running workspace may still have that history.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Replayer
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from activities.attempt import Attempt
from activities.resources import ResourceActuators
from adapters.memory.runtime import MemoryRuntime
from domain.errors import ActionFailed
from domain.model import DesiredState, Operation, Phase
from domain.naming import workflow_id
from settings import Settings
from tests.integration.system import System, system
from workflows.workspace import WorkspaceWorkflow

HISTORIES = Path(__file__).parent / "histories"


def replayer() -> Replayer:
    return Replayer(
        workflows=[WorkspaceWorkflow],
        workflow_runner=SandboxedWorkflowRunner(
            restrictions=SandboxRestrictions.default.with_passthrough_modules("domain", "pydantic", "structlog")
        ),
    )


@pytest.mark.parametrize("path", sorted(HISTORIES.glob("*.json")), ids=lambda path: path.stem)
async def test_recorded_history_replays(path: Path) -> None:
    """PROMISE 7."""
    workflow, _, _ = path.stem.partition("--")
    await replayer().replay_workflow(WorkflowHistory.from_json(workflow, path.read_text()))


async def test_there_are_recorded_histories() -> None:
    """PROMISE 7: of a whole life, of failures, and of a run that was continued."""
    assert len(list(HISTORIES.glob("*.json"))) >= 4


@pytest.fixture
async def start(temporal_client: Client, database_url: str) -> AsyncIterator[Callable[..., object]]:
    async with AsyncExitStack() as stack:

        async def started(**options: object) -> System:
            running = system(temporal_client, database_url, MemoryRuntime(), "image", **options)  # type: ignore[arg-type]
            return await stack.enter_async_context(running)

        yield started


async def check(client: Client, workspace: str, name: str) -> None:
    history = await client.get_workflow_handle(workflow_id(workspace)).fetch_history()  # type: ignore[arg-type]
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
        return {**ResourceActuators(runtime).by_operation(), Operation.STARTING: begin}

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
        return {**ResourceActuators(runtime).by_operation(), Operation.STARTING: hang}

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
