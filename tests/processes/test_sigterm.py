"""A worker that is told to stop drains: no operation fails because of it (PROMISE 10)."""

import asyncio
import time

import pytest

from domain.model import DesiredState, Operation, Phase
from tests.processes.conftest import Deploy
from tests.processes.deployment import Deployment

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

SLACK = 60.0
"""For a machine that has a lot to do."""


async def test_operations_finish_before_the_worker_ends(deploy: Deploy, slow_image: str) -> None:
    """PROMISE 10: what can be finished while it drains is finished by the worker itself, in its one attempt."""
    deployment = await deploy(WORKSPACE_IMAGE=slow_image, WORKER_DRAIN_SECONDS="60")
    worker = await deployment.worker()
    workspaces = [await deployment.console.create() for _ in range(3)]
    for workspace in workspaces:
        await deployment.until_operation(workspace, Operation.STARTING)
    worker.terminate()
    assert await worker.ended(60 + SLACK) == 0
    rows = [await deployment.row(workspace) for workspace in workspaces]
    assert {(row.phase, row.operation, row.error_count) for row in rows} == {(Phase.RUNNING, Operation.NONE, 0)}
    assert await _attempts(deployment, Operation.STARTING) == [1, 1, 1]
    assert not await deployment.wrong()


async def test_what_takes_longer_is_handed_over(deploy: Deploy, slow_image: str) -> None:
    """PROMISE 10: an operation that outlasts WORKER_DRAIN_SECONDS fails nothing, and the next worker finishes it."""
    deployment = await deploy(WORKSPACE_IMAGE=slow_image, WORKER_DRAIN_SECONDS="1")
    worker = await deployment.worker()
    workspace = await deployment.console.create()
    await deployment.until_operation(workspace, Operation.STARTING)
    told = time.monotonic()
    worker.terminate()
    assert await worker.ended() == 0
    assert time.monotonic() - told < 1 + SLACK
    row = await deployment.row(workspace)
    assert (row.operation, row.error_count, row.error_reason) == (Operation.STARTING, 0, None)
    await deployment.worker()
    await deployment.converged()
    assert await _attempts(deployment, Operation.STARTING) == [2]
    assert not await deployment.wrong()


async def test_a_worker_is_replaced_while_operations_run(deploy: Deploy) -> None:
    """PROMISE 10, as an upgrade does it: start the new one, stop the old one, again and again; nothing fails."""
    deployment = await deploy(WORKER_DRAIN_SECONDS="5")
    worker = await deployment.worker()
    workspaces = [await deployment.console.create(DesiredState.STANDBY) for _ in range(4)]
    await deployment.converged()
    for desired in (DesiredState.RUNNING, DesiredState.ARCHIVED):
        following = await deployment.worker()
        for workspace in workspaces:
            await deployment.console.want(workspace, desired)
        worker.terminate()
        errors = asyncio.create_task(_most_errors(deployment))
        assert await worker.ended() == 0
        await deployment.converged()
        errors.cancel()
        assert await errors == 0
        worker = following
    assert not await deployment.wrong()


async def _attempts(deployment: Deployment, operation: Operation) -> list[int]:
    rows = await deployment.database.fetch("SELECT attempts FROM operations WHERE operation = $1", operation)
    return [row["attempts"] for row in rows]


async def _most_errors(deployment: Deployment) -> int:
    """The highest error_count that was ever seen, until it is cancelled."""
    most = 0
    try:
        while True:
            most = max(most, await deployment.database.fetchval("SELECT max(error_count) FROM workspaces"))
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        return most
