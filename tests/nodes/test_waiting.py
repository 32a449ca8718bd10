"""Whoever finds no place for its home sleeps until there is one: nobody polls, and nobody is forgotten."""

from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import uuid4

import pytest
from temporalio.client import Client

from activities.reconcile import Reconciler
from adapters.memory.runtime import MemoryRuntime
from adapters.postgres.attention import Attention
from adapters.postgres.database import Database, open_database
from adapters.postgres.nodes import Nodes, Registration
from adapters.postgres.placements import Placements
from adapters.postgres.workspaces import WorkspaceStore
from coordinator.waiters import Waiters
from domain.model import Operation, Phase, WorkspaceId
from settings import Settings
from tests.api.world import RecordedWakes
from tests.integration.system import NoArchives, system
from workflows.client import TemporalUnavailable
from workflows.messages import StepKind

AT_ONCE = timedelta(0)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = await open_database(database_url)
    await _register(opened, "a", 1)
    yield opened
    await opened.close()


async def _register(database: Database, name: str, capacity: int | None) -> None:
    assert await Nodes(database).register(Registration(name, f"engine-{name}", "127.0.0.1", capacity, 2, 1 << 32))


async def _workspaces(database: Database, number: int) -> list[WorkspaceId]:
    """Asked for one after the other."""
    owner = await database.fetchval("INSERT INTO users (username, password_hash) VALUES ('alice', '') RETURNING id")
    ids = [WorkspaceId(str(uuid4())) for _ in range(number)]
    for id_ in ids:
        await database.execute(
            "INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state)"
            " VALUES ($1, $2, $1::uuid::text, 'image', 'RUNNING')",
            id_,
            owner,
        )
    return ids


def _reconciler(database: Database) -> Reconciler:
    return Reconciler(WorkspaceStore(database), MemoryRuntime(), NoArchives(), "a")


def _waiters(database: Database, wakes: RecordedWakes) -> Waiters:
    return Waiters(Placements(database), wakes)  # type: ignore[arg-type]


async def test_as_many_are_woken_as_there_are_places(database: Database) -> None:
    """In the order in which they came. Until then they rest, and nobody takes them for forgotten."""
    ids = await _workspaces(database, 4)
    reconciler, wakes = _reconciler(database), RecordedWakes()
    waiters = _waiters(database, wakes)
    steps = [await reconciler.step(id_) for id_ in ids]
    assert [step.kind for step in steps] == [StepKind.RUN, StepKind.WAIT, StepKind.WAIT, StepKind.WAIT]
    assert all(step.wait_seconds > 1800 and not step.looking for step in steps[1:]), "they look again and again"
    assert await waiters.look() == []
    assert ids[1] not in await Attention(database).stuck(AT_ONCE, {})

    await database.execute("UPDATE nodes SET capacity = 3")
    assert await waiters.look() == wakes.woken == ids[1:3]
    assert await waiters.look() == [], "they are on their way"
    waiters.again = 0.0
    assert await waiters.look() == ids[1:3], "they took no place: somebody missed the wake"
    for id_ in ids[1:3]:
        assert (await reconciler.step(id_)).operation is Operation.PROVISIONING
    assert await waiters.look() == []


async def test_a_kept_place_needs_no_free_one(database: Database) -> None:
    """The node that keeps it was lost, and is back."""
    _, moving = ids = await _workspaces(database, 2)
    reconciler, waiters = _reconciler(database), _waiters(database, RecordedWakes())
    for id_ in ids:
        await reconciler.step(id_)
    await _register(database, "b", 1)
    await database.execute("UPDATE workspaces SET move_to = 'b' WHERE id = $1", moving)
    await database.execute("UPDATE nodes SET lost_at = now() WHERE name = 'b'")
    assert await waiters.look() == []
    assert await Nodes(database).beat("b", None)
    assert await waiters.look() == [moving]


async def test_a_wake_that_temporal_did_not_take_is_sent_again(database: Database) -> None:
    ids = await _workspaces(database, 2)
    for id_ in ids:
        await _reconciler(database).step(id_)
    await _register(database, "b", None)
    wakes = RecordedWakes(away=True)
    waiters = _waiters(database, wakes)
    with pytest.raises(TemporalUnavailable):
        await waiters.look()
    wakes.away = False
    assert await waiters.look() == [ids[1]]


async def test_one_that_is_wanted_elsewhere_waits_no_more(database: Database) -> None:
    """Its owner asks for something that takes no place, and the wake is lost: the look for stragglers finds it."""
    _, waiting = ids = await _workspaces(database, 2)
    for id_ in ids:
        await _reconciler(database).step(id_)
    await database.execute("UPDATE workspaces SET desired_state = 'ARCHIVED' WHERE id = $1", waiting)
    assert waiting in await Attention(database).stuck(AT_ONCE, {})
    assert await Placements(database).waiting(10) == []


async def test_a_place_that_becomes_free_is_taken(temporal_client: Client, database_url: str) -> None:
    """By the leader's wake: whoever waits looks after an hour, and so does whoever looks for stragglers."""
    settings = Settings(coordinator_idle_interval=3600, coordinator_retry_interval=0.2)
    async with system(temporal_client, database_url, MemoryRuntime(), "image", settings=settings) as running:
        await _register(running.parts.database, "local", 1)
        first = await running.create()
        await running.until_phase(first, Phase.RUNNING)
        second = await running.create()
        await running.until(second, lambda ws: bool(ws.conditions))
        # Of this one only its notification tells: when that was heard, so was the second one's, which wakes it again.
        third = await running.insert()
        await running.until(third, lambda ws: bool(ws.conditions))
        waiting = await running.row(second)
        assert (waiting.phase, waiting.operation, waiting.node) == (Phase.PENDING, Operation.NONE, None)
        await running.delete(first)
        await running.until_phase(second, Phase.RUNNING)
