"""`codehub worker --verify`: which live workspaces a version could not go on with, before it runs."""

import asyncio
from datetime import timedelta

import pytest
import typer
from temporalio.client import Client
from temporalio.service import RPCStatusCode

from domain.model import Phase, WorkspaceId
from domain.naming import workflow_id
from settings import Settings
from starter.commands import replaying
from starter.commands.failure import CommandFailed
from tests.integration.conftest import in_memory
from tests.integration.system import System
from tests.namespaces import unless
from tests.processes.process import until
from tests.upgrade.changed import ChangedWorkflow
from workflows import verify
from workflows.messages import TASK_QUEUE, WorkspaceInput
from workflows.verify import replay_running
from workflows.workspace import WorkspaceWorkflow

__all__ = ["in_memory"]


async def test_live_histories_are_replayed(
    in_memory: System, temporal_client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of this version go on; a workflow that does something else is named, and the exit code is 1."""
    workspaces = [await in_memory.create() for _ in range(2)]
    for workspace in workspaces:
        await in_memory.until_phase(workspace, Phase.RUNNING)

    async def are_listed() -> bool:
        return len([one async for one in temporal_client.list_workflows(verify.LIVE)]) == len(workspaces)

    # The listing is late.
    await until(are_listed, 60, "not all of them are listed")
    found = [one async for one in replay_running(temporal_client)]
    assert {one.workflow_id for one in found} == {workflow_id(workspace) for workspace in workspaces}
    assert [one.error for one in found] == [None, None]
    settings = Settings(
        temporal_address=temporal_client.service_client.config.target_host,
        temporal_namespace=temporal_client.namespace,
    )
    await replaying.replay_live(settings)
    assert "2 of 2 live histories" in capsys.readouterr().out

    monkeypatch.setattr(verify, "WORKFLOWS", [ChangedWorkflow])
    with pytest.raises(typer.Exit) as ended:
        await replaying.replay_live(settings)
    assert ended.value.exit_code == 1
    told = capsys.readouterr().out
    assert f"✗ {workflow_id(workspaces[0])}" in told
    assert "0 of 2 live histories" in told
    # It only read: they still run, with the version that they have.
    for workspace in workspaces:
        await in_memory.delete(workspace)
        await in_memory.until_phase(workspace, Phase.DELETED)


async def test_a_run_that_has_not_begun_is_no_obstacle(in_memory: System, temporal_client: Client) -> None:
    """Its history has one event only, which can't be replayed."""
    handle = await temporal_client.start_workflow(
        WorkspaceWorkflow.run,
        WorkspaceInput(WorkspaceId("later")),
        id=workflow_id(WorkspaceId("later")),
        task_queue=TASK_QUEUE,
        start_delay=timedelta(hours=1),
    )
    try:
        async with asyncio.timeout(60):
            while not (found := [one async for one in replay_running(temporal_client)]):
                await asyncio.sleep(0.1)
        assert [(one.workflow_id, one.events, one.error) for one in found] == [(handle.id, 1, None)]
    finally:
        with unless(RPCStatusCode.NOT_FOUND):
            await handle.terminate()


async def test_a_temporal_that_is_away_verifies_nothing() -> None:
    """Not taken for "all is well"."""
    with pytest.raises(CommandFailed, match="nothing is verified"):
        await replaying.replay_live(Settings(temporal_address="127.0.0.1:1"))
