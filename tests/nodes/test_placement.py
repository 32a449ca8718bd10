"""Which node a home goes to: the rule, and that it is exact when many ask at once."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.reconcile import Reconciler
from adapters.memory.runtime import MemoryRuntime
from adapters.postgres.database import Database, open_database
from adapters.postgres.nodes import Nodes, Registration
from adapters.postgres.workspaces import WorkspaceStore
from domain.model import ConditionName, DesiredState, Operation, Phase, WorkspaceId
from domain.placement import Place, choose, spread, why_nowhere
from tests.integration.system import NoArchives
from workflows.messages import Step, StepKind

GIB = 1024**3
places = st.lists(
    st.builds(
        Place,
        name=st.sampled_from("abcdef"),
        homes=st.integers(0, 6),
        running=st.integers(0, 6),
        capacity=st.none() | st.integers(1, 6),
        memory=st.sampled_from([2 * GIB, 64 * GIB]),
        cordoned=st.booleans(),
        lost=st.booleans(),
    ),
    unique_by=lambda place: place.name,
)


@given(places)
def test_nothing_is_placed_where_nothing_may_be(found: list[Place]) -> None:
    """Never on a full, cordoned or lost node; and somewhere, whenever there is a node that is none of these."""
    by_name = {place.name: place for place in found}
    chosen = choose(found)
    if chosen is None:
        assert all(place.refusal() for place in found)
        assert all(place.name in why_nowhere(found) for place in found)
    else:
        assert by_name[chosen].refusal() is None


@given(places, st.lists(st.booleans(), max_size=12), st.sampled_from("abcdef"))
def test_a_drained_node_gives_no_node_more_than_it_takes(found: list[Place], running: list[bool], name: str) -> None:
    chosen, after = spread(found, running, leaving=name)
    assert name not in chosen
    assert all(place.homes <= max(place.capacity or 0, before.homes) for place, before in _limited(after, found))
    assert len(chosen) == len(running) or choose(after, leaving=name) is None


def _limited(after: list[Place], before: list[Place]) -> list[tuple[Place, Place]]:
    return [(one, other) for one, other in zip(after, before, strict=True) if one.capacity is not None]


def test_the_larger_node_gets_more() -> None:
    small, large = Place("small", memory=4 * GIB), Place("large", memory=12 * GIB)
    chosen, _ = spread([small, large], [True] * 8, leaving="another")
    assert Counter(chosen) == {"large": 6, "small": 2}


def test_a_kept_place_needs_no_free_one() -> None:
    """It is counted already."""
    assert choose([Place("a", homes=1, capacity=1)], kept="a") == "a"
    assert choose([Place("a", homes=1, capacity=1, lost=True), Place("b")], kept="a") == "b"


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = await open_database(database_url, max_size=20)
    yield opened
    await opened.close()


async def _workspaces(database: Database, number: int) -> list[WorkspaceId]:
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


async def _register(database: Database, **capacities: int | None) -> None:
    for name, capacity in capacities.items():
        assert await Nodes(database).register(Registration(name, f"engine-{name}", "127.0.0.1", capacity, 2, 4 * GIB))


def _reconciler(database: Database, node: str = "a") -> Reconciler:
    return Reconciler(WorkspaceStore(database), MemoryRuntime(), NoArchives(), node)


async def test_limits_per_node_are_exact(database: Database) -> None:
    """Twenty claims at once for eight places: eight operations begin, on the nodes that had room; the others wait, and
    say for what. A place that becomes free is taken."""
    await _register(database, a=3, b=5)
    ids = await _workspaces(database, 20)
    reconcilers = [_reconciler(database, node) for node in ("a", "b")]
    steps = await asyncio.gather(*(reconcilers[n % 2].step(id_) for n, id_ in enumerate(ids)))
    begun = [step for step in steps if step.kind is StepKind.RUN]
    assert Counter(step.task_queue for step in begun) == {"node-a": 3, "node-b": 5}
    waiting = [id_ for id_, step in zip(ids, steps, strict=True) if step.kind is StepKind.WAIT]
    row = await reconcilers[0].store.load(waiting[0])
    assert row
    assert (row.phase, row.operation, row.node) == (Phase.PENDING, Operation.NONE, None)
    assert row.conditions[ConditionName.VOLUME_READY].reason == "NoPlace"
    assert "a is full (3 of 3)" in row.conditions[ConditionName.VOLUME_READY].message
    await database.execute("UPDATE nodes SET capacity = 4 WHERE name = 'a'")
    again: Step = await reconcilers[1].step(waiting[0])
    assert (again.kind, again.operation, again.task_queue) == (StepKind.RUN, Operation.PROVISIONING, "node-a")


async def test_one_node_needs_no_choice(database: Database) -> None:
    """A host that is alone, registered or not: its operations go to the workflow's own queue, without a deadline."""
    first, second = await _workspaces(database, 2)
    reconciler = _reconciler(database, "local")
    step = await reconciler.step(first)
    assert (step.kind, step.task_queue, step.status and step.status.node) == (StepKind.RUN, None, "local")
    await _register(database, local=None)
    step = await reconciler.step(second)
    assert (step.kind, step.task_queue, step.status and step.status.node) == (StepKind.RUN, None, "local")


async def test_a_host_whose_engine_has_not_answered_yet_gets_no_home(database: Database) -> None:
    """A worker that has just been added runs workflows at once, but is no node before its engine is known: what it
    reconciles goes to the one that is."""
    await _register(database, a=None)
    (id_,) = await _workspaces(database, 1)
    step = await _reconciler(database, "b").step(id_)
    assert (step.kind, step.task_queue, step.status and step.status.node) == (StepKind.RUN, "node-a", "a")


async def test_what_is_remembered_is_gone_by_until_a_sweep_contradicts_it(database: Database) -> None:
    """A worker elsewhere claims on what the row says while the node's observer vouches for it, and else has the node
    asked."""
    await _register(database, a=None, b=None)
    (id_,) = await _workspaces(database, 1)
    at_home, elsewhere = _reconciler(database, "a"), _reconciler(database, "b")
    await database.execute("UPDATE nodes SET cordoned_at = now() WHERE name = 'b'")
    await at_home.step(id_)
    row = await at_home.store.load(id_)
    assert row
    assert (row.node, row.op_id is not None) == ("a", True)
    assert await at_home.store.begin_attempt(row.op_id)  # type: ignore[arg-type]
    assert (await elsewhere.step(id_)).kind is StepKind.ASK, "an operation under way has to be looked at"
    await at_home.runtime.create_volume(id_, row.op_id)  # type: ignore[arg-type]
    await database.execute("UPDATE workspaces SET desired_state = 'STANDBY' WHERE id = $1", id_)
    assert (await at_home.step(id_)).kind is StepKind.WAIT
    await database.execute("UPDATE workspaces SET desired_state = 'RUNNING' WHERE id = $1", id_)
    await database.execute("UPDATE workspaces SET observed_at = now() - interval '1 hour' WHERE id = $1", id_)
    assert (await elsewhere.step(id_)).kind is StepKind.ASK, "too old"
    assert await Nodes(database).beat("a", timedelta(seconds=5))
    step = await elsewhere.step(id_)
    assert (step.kind, step.operation, step.task_queue) == (StepKind.RUN, Operation.STARTING, "node-a")


async def test_a_place_is_free_again_when_a_moving_home_stays_in_the_store(database: Database) -> None:
    """What was kept for a home that is to be ARCHIVED after all does not stay taken."""
    await _register(database, a=1, b=1)
    (id_,) = await _workspaces(database, 1)
    key = f"{id_}/{uuid4()}/home.tar.zst"
    await database.execute(
        "UPDATE workspaces SET phase = 'ARCHIVED', archive_key = $2, desired_state = $3, move_to = 'a' WHERE id = $1",
        id_,
        key,
        DesiredState.ARCHIVED,
    )

    class Archives:
        async def observe(self, _: str) -> object:
            from domain.observation import Presence

            return Presence.PRESENT

    reconciler = Reconciler(WorkspaceStore(database), MemoryRuntime(), Archives(), "b")  # type: ignore[arg-type]
    await reconciler.step(id_)
    row = await reconciler.store.load(id_)
    assert row
    assert (row.phase, row.move_to) == (Phase.ARCHIVED, None)
