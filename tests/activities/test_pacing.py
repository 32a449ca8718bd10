"""A start that has to wait: what the row, the workflow and whoever looks for stragglers are told of it."""

from datetime import timedelta
from uuid import uuid4

import pytest
from prometheus_client import REGISTRY

from activities.reconcile import Reconciler
from adapters.memory.runtime import MemoryRuntime
from adapters.postgres.attention import Attention
from adapters.postgres.database import Database
from adapters.postgres.desired_state import DesiredStates
from adapters.postgres.fleet import read_fleet
from adapters.postgres.workspaces import WorkspaceStore
from domain.limits import Limits
from domain.model import DesiredState, Operation, OperationId, Phase, Workspace, WorkspaceId
from domain.pacing import LONGEST, MOST, is_paused
from tests.integration.system import NoArchives
from workflows.messages import Step, StepKind

# The latest one has just ended, the others one after the other before it.
LOG = """
INSERT INTO operations (id, workspace_id, operation, previous_phase, started_at, finished_at, outcome, attempts)
SELECT gen_random_uuid(), $1, $2, 'STANDBY', now() - n * interval '2 seconds', now() - n * interval '2 seconds',
    'SUCCEEDED', 1
FROM generate_series(0, $3 - 1) AS n
"""


class World:
    """A workspace that was RUNNING until its container went, and should be."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.id = WorkspaceId(str(uuid4()))
        self.runtime = MemoryRuntime()
        self.store = WorkspaceStore(database)
        self.desired = DesiredStates(database, Limits(10, 10))

    async def starts(self, number: int, operation: Operation = Operation.STARTING) -> None:
        await self.database.execute(LOG, self.id, operation, number)

    async def log_is_older(self, by: timedelta) -> None:
        await self.database.execute(
            "UPDATE operations SET started_at = started_at - $1::interval, finished_at = finished_at - $1::interval", by
        )

    async def step(self) -> Step:
        return await Reconciler(self.store, self.runtime, NoArchives()).step(self.id)

    async def row(self) -> Workspace:
        row = await self.store.load(self.id)
        assert row is not None
        return row


@pytest.fixture
async def world(database: Database) -> World:
    made = World(database)
    await database.execute(
        "INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state, phase, node)"
        " SELECT $1, id, 'w', 'image', 'RUNNING', 'RUNNING', 'local' FROM users",
        made.id,
    )
    await made.runtime.create_volume(made.id, OperationId(str(uuid4())))
    return made


@pytest.mark.parametrize("starts", [1, 2])
async def test_what_ended_once_or_twice_is_started_at_once(world: World, starts: int) -> None:
    await world.starts(starts)
    step = await world.step()
    assert (step.kind, step.operation) == (StepKind.RUN, Operation.STARTING)


async def test_what_keeps_ending_waits_and_the_row_says_so(world: World) -> None:
    """STANDBY with no operation; the workflow sleeps for what is left. More looks say the same and write nothing."""
    await world.starts(MOST)
    step = await world.step()
    assert (step.kind, step.looking) == (StepKind.WAIT, False)
    assert LONGEST.total_seconds() - 60 < step.wait_seconds <= LONGEST.total_seconds()
    row = await world.row()
    assert (row.phase, row.operation, is_paused(row)) == (Phase.STANDBY, Operation.NONE, True)
    again = await world.step()
    assert again.wait_seconds < step.wait_seconds
    assert (await world.row()).updated_at == row.updated_at


async def test_when_the_pause_is_over_it_is_started(world: World) -> None:
    """Which is no wake that took ten minutes."""
    await world.starts(MOST)
    assert (await world.step()).kind is StepKind.WAIT
    await world.log_is_older(LONGEST)
    before = REGISTRY.get_sample_value("codehub_wake_seconds_count")
    step = await world.step()
    assert (step.kind, step.operation) == (StepKind.RUN, Operation.STARTING)
    assert REGISTRY.get_sample_value("codehub_wake_seconds_count") == before


async def test_a_person_who_wants_it_anew_does_not_wait(world: World) -> None:
    """STANDBY and RUNNING again, even before anybody looked in between. To open it again and again changes nothing."""
    await world.starts(MOST)
    assert (await world.step()).kind is StepKind.WAIT
    await world.desired.set(world.id, DesiredState.RUNNING)
    assert (await world.step()).kind is StepKind.WAIT, "it was wanted RUNNING before"
    await world.desired.set(world.id, DesiredState.STANDBY)
    await world.desired.set(world.id, DesiredState.RUNNING)
    assert (await world.step()).operation is Operation.STARTING


async def test_a_person_who_recovers_it_does_not_wait(world: World) -> None:
    await world.starts(MOST)
    await world.database.execute("UPDATE workspaces SET phase = 'ERROR', error_reason = 'ActionFailed'")
    await world.desired.recover(world.id)
    assert (await world.step()).operation is Operation.STARTING


async def test_after_another_operation_it_does_not_wait(world: World) -> None:
    """It was stopped since."""
    await world.starts(MOST)
    await world.log_is_older(timedelta(seconds=5))
    await world.starts(1, Operation.STOPPING)
    assert (await world.step()).operation is Operation.STARTING


async def test_nobody_takes_it_for_forgotten_before_its_time(world: World) -> None:
    """Neither the look for stragglers nor the alert that nobody comes. What nobody started then is found."""
    patience, attention = timedelta(seconds=5), Attention(world.database)
    await world.starts(MOST)
    assert (await world.step()).kind is StepKind.WAIT
    since = "UPDATE workspaces SET updated_at = now() - $1::interval"
    await world.database.execute(since, LONGEST - timedelta(minutes=1))
    assert await attention.stuck(patience, {}) == {}
    assert (await read_fleet(world.database)).longest_wait == 0
    await world.database.execute(since, LONGEST + timedelta(minutes=1))
    assert list(await attention.stuck(patience, {})) == [world.id]
    assert (await read_fleet(world.database)).longest_wait >= 60
    # What is wanted of it now has nothing to wait for.
    await world.database.execute("UPDATE workspaces SET desired_state = 'ARCHIVED'")
    await world.database.execute(since, timedelta(minutes=1))
    assert list(await attention.stuck(patience, {})) == [world.id]
