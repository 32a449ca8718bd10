"""A node with its hands full: what waits in its queue waits for its turn, and for nothing else."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest
from temporalio.client import Client

from activities.attempt import Attempt
from adapters.memory.runtime import MemoryRuntime
from domain.model import DesiredState, ErrorReason, Operation, Phase, WorkspaceId
from tests.nodes.fleet import Actuators, Fleet, fleet, quick

pytestmark = pytest.mark.timeout(300)

AT_ONCE = 4
"""Operations that the busy node takes at a time."""


def slow(seconds: float) -> Callable[[MemoryRuntime], Actuators]:
    """Starts that take their time, as those of a real engine do."""

    def actuators(runtime: MemoryRuntime) -> Actuators:
        async def start(attempt: Attempt) -> None:
            await asyncio.sleep(seconds)
            await runtime.start(attempt.workspace.id, attempt.workspace.image_ref, attempt.op_id)

        return {Operation.STARTING: start}

    return actuators


@pytest.mark.parametrize("count", [100, pytest.param(300, marks=[pytest.mark.full, pytest.mark.alone])])
async def test_many_starts_on_one_node_all_finish_and_disturb_no_other(
    temporal_client: Client, database_url: str, count: int
) -> None:
    """Hundreds at once, and the last ones wait for several times as long as a start may take: nothing fails, nothing
    is asked for again and again, and a workspace of another node starts and stops meanwhile as it always does."""
    async with fleet(temporal_client, database_url) as nodes:
        busy = quick(worker_max_concurrent_activities=AT_ONCE, reconciler_starting_timeout=4)
        async with nodes.worker("local"), nodes.worker("b", busy, slow(0.2)):
            (bystander,) = await nodes.create("local", 1)
            await nodes.wake([bystander])
            await nodes.until([bystander], Phase.RUNNING, 30)
            storm = await nodes.create("b", count)
            waking = asyncio.create_task(nodes.wake(storm))
            took = await _meanwhile(nodes, bystander, storm, Phase.RUNNING)
            await waking
            await nodes.until(storm, Phase.RUNNING, 120)
        failed = await nodes.database.fetch("SELECT operation, error_reason FROM operations WHERE outcome = 'FAILED'")
        assert failed == []
        assert max(took) < 10, took
        kinds = [Counter(await nodes.events(workspace)) for workspace in storm]
        assert max(sum(kind.values()) for kind in kinds) < 60
        assert sum(kind["activity_task_timed_out_event_attributes"] for kind in kinds) == 0


async def _meanwhile(nodes: Fleet, bystander: WorkspaceId, others: list[WorkspaceId], phase: Phase) -> list[float]:
    """How long each stop and start of the bystander took until half of the others have come to this phase."""
    took: list[float] = []
    while sum(row.phase is phase for row in await nodes.rows(others)) < len(others) / 2:
        for desired in (DesiredState.STANDBY, DesiredState.RUNNING):
            began = time.monotonic()
            await nodes.want(bystander, desired)
            await nodes.until([bystander], Phase(desired), 60)
            took.append(time.monotonic() - began)
    return took


@pytest.mark.parametrize(
    ("homes", "claims"), [(30, 12), pytest.param(150, 30, marks=[pytest.mark.full, pytest.mark.alone])]
)
async def test_what_waits_for_a_node_that_dies_is_unreachable_in_time_and_heals(
    temporal_client: Client, database_url: str, homes: int, claims: int
) -> None:
    """Within 30 s, with the settings as they are: what is at rest there, what was being done, and what waited for its
    turn behind that. A workspace of another node does not notice. When the node is back, all of it goes on."""
    async with fleet(temporal_client, database_url) as nodes, nodes.worker("local"):
        (bystander,) = await nodes.create("local", 1)
        await nodes.wake([bystander])
        await nodes.until([bystander], Phase.RUNNING, 30)
        async with nodes.worker("b"):
            resting = await nodes.create("b", homes)
            await nodes.wake(resting)
            await nodes.until(resting, Phase.RUNNING, 60)
        async with nodes.worker("b", quick(worker_max_concurrent_activities=AT_ONCE), slow(3600)):
            waiting = await nodes.create("b", claims)
            await nodes.wake(waiting)
            await _until_all_are_claimed(nodes, waiting)
        died = await nodes.database.fetchval("SELECT seen_at FROM nodes WHERE name = 'b'")
        everything = [*resting, *waiting]
        took = await _meanwhile(nodes, bystander, everything, Phase.ERROR)
        await nodes.until(everything, Phase.ERROR, 60)
        for row in await nodes.rows(everything):
            assert row.error_reason is ErrorReason.UNREACHABLE
            assert row.phase_changed_at - died < timedelta(seconds=30), row.phase_changed_at - died
        assert max(took) < 10, took
        async with nodes.worker("b"):
            await nodes.until(everything, Phase.RUNNING, 60)
        for workspace in waiting:
            assert len(await nodes.events(workspace)) < 100


async def _until_all_are_claimed(nodes: Fleet, workspaces: list[WorkspaceId]) -> None:
    """As many as the node takes at a time are being started; the others wait for their turn."""
    async with asyncio.timeout(60):
        while True:
            operations = Counter(row.operation for row in await nodes.rows(workspaces))
            if operations[Operation.STARTING] >= AT_ONCE and not operations[Operation.NONE]:
                return
            await asyncio.sleep(0.05)
