"""A node that is lost: what is judged, who is woken and recovered, and what a person can do when it never returns."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from time import monotonic
from uuid import uuid4

import pytest

from activities.reconcile import Reconciler
from adapters.memory.runtime import MemoryRuntime
from adapters.postgres.database import Database, open_database
from adapters.postgres.desired_state import DesiredStates
from adapters.postgres.nodes import Nodes, Registration
from adapters.postgres.workspaces import WorkspaceStore
from adapters.tasks import end
from coordinator.nodewatch import NodeWatch
from domain.judge import waits_for_node
from domain.limits import Limits
from domain.model import ConditionName, ErrorReason, Operation, Phase, Workspace, WorkspaceId
from tests.integration.system import NoArchives
from workflows.messages import ReconcileInput, StepKind

SINCE = {"message": "", "last_transition_time": "2026-01-01T00:00:00+00:00"}


@dataclass
class Woken:
    ids: list[WorkspaceId] = field(default_factory=list)

    async def wake(self, workspace_id: WorkspaceId) -> None:
        self.ids.append(workspace_id)

    async def wake_all(self, workspaces: list[WorkspaceId]) -> None:
        self.ids += workspaces


@dataclass
class Two:
    """Nodes `a`, which is here, and `b`, which comes and goes; a RUNNING workspace on each."""

    database: Database
    nodes: Nodes
    here: Reconciler
    on_b: Reconciler
    ids: dict[str, WorkspaceId]

    async def row(self, node: str) -> Workspace:
        found = await self.here.store.load(self.ids[node])
        assert found
        return found

    async def silent(self, node: str = "b") -> None:
        await self.database.execute("UPDATE nodes SET seen_at = now() - interval '1 minute' WHERE name = $1", node)

    async def lose(self) -> None:
        await self.silent()
        assert await self.nodes.declare_lost(heard=True) == ["b"]

    def watch(self, limits: Limits | None = None) -> tuple[NodeWatch, Woken]:
        woken = Woken()
        states = DesiredStates(self.database, limits or Limits(100, 100))
        watch = NodeWatch(self.nodes, states, woken)  # type: ignore[arg-type]
        # It has led for a while.
        watch._hears_since = monotonic() - 60
        return watch, woken


async def look(watch: NodeWatch) -> None:
    """All of it, once."""
    for one in watch.looks:
        await one()


@pytest.fixture
async def two(database_url: str) -> AsyncIterator[Two]:
    database = await open_database(database_url)
    nodes = Nodes(database)
    reconcilers = {}
    for name in ("a", "b"):
        assert await nodes.register(Registration(name, f"engine-{name}", "127.0.0.1", None, 2, 1 << 32))
        reconcilers[name] = Reconciler(WorkspaceStore(database), MemoryRuntime(), NoArchives(), name)
    owner = await database.fetchval("INSERT INTO users (username, password_hash) VALUES ('alice', '') RETURNING id")
    ids = {name: WorkspaceId(str(uuid4())) for name in ("a", "b")}
    for name, id_ in ids.items():
        await database.execute(
            "INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state, node)"
            " VALUES ($1, $2, $1::uuid::text, 'image', 'RUNNING', $3)",
            id_,
            owner,
            name,
        )
        await _run(reconcilers[name], id_)
    yield Two(database, nodes, reconcilers["a"], reconcilers["b"], ids)
    await database.close()


async def _run(reconciler: Reconciler, workspace: WorkspaceId) -> None:
    """Operations as their activities would do them, until nothing is left to do."""
    while (step := await reconciler.step(workspace)).kind is StepKind.RUN:
        if step.operation is Operation.PROVISIONING:
            await reconciler.runtime.create_volume(workspace, step.op_id)
        else:
            await reconciler.runtime.start(workspace, "image", step.op_id)


async def test_its_workspaces_are_unreachable_and_nobody_elses(two: Two) -> None:
    """Woken once, judged by whoever runs their workflow; what was known of them is kept."""
    watch, woken = two.watch()
    await look(watch)
    assert woken.ids == []
    await two.silent()
    await look(watch)
    await look(watch)
    listed = [(entry.node.name, entry.lost) for entry in await two.nodes.entries()]
    assert listed == [("a", False), ("b", True)]
    assert woken.ids == [two.ids["b"]], "woken once, not again and again"
    assert (await two.here.step(two.ids["b"])).kind is StepKind.WAIT
    row = await two.row("b")
    assert (row.phase, row.error_reason, row.operation) == (Phase.ERROR, ErrorReason.UNREACHABLE, Operation.NONE)
    assert row.condition(ConditionName.VOLUME_READY)
    assert (row.node, waits_for_node(row)) == ("b", True)
    await two.here.step(two.ids["a"])
    assert (await two.row("a")).phase is Phase.RUNNING


async def test_it_heals_when_the_node_returns_and_no_sooner(two: Two) -> None:
    """Also where its row was looked at in between, and where a person recovered it too early."""
    await two.lose()
    await two.here.step(two.ids["b"])
    await DesiredStates(two.database, Limits(9, 9)).recover(two.ids["b"])
    await two.here.step(two.ids["b"])
    assert (await two.row("b")).error_reason is ErrorReason.UNREACHABLE
    assert await two.nodes.beat("b", None)
    await two.on_b.step(two.ids["b"])
    assert (await two.row("b")).phase is Phase.ERROR, "only a recover leads out of ERROR"
    watch, woken = two.watch()
    await look(watch)
    assert woken.ids == [two.ids["b"]]
    await _run(two.on_b, two.ids["b"])
    row = await two.row("b")
    assert (row.phase, row.error_reason, row.condition(ConditionName.HEALTHY)) == (Phase.RUNNING, None, True)


async def test_coming_back_needs_a_place_among_the_running(two: Two) -> None:
    """Limits stay exact: what is in ERROR holds no place, so it is not recovered over the limit."""
    await two.lose()
    await two.here.step(two.ids["b"])
    assert await two.nodes.beat("b", None)
    watch, woken = two.watch(Limits(1, 100))
    await look(watch)
    assert woken.ids == []
    assert (await two.row("b")).phase is Phase.ERROR


async def test_what_comes_back_is_recovered_together(two: Two) -> None:
    """As many as there are, limits exact; what is in ERROR for another reason by now is left to a person."""
    owner = (await two.row("b")).owner_user_id
    ids = await two.database.fetch(
        "INSERT INTO workspaces"
        " (id, owner_user_id, name, image_ref, desired_state, phase, node, error_reason, conditions)"
        " SELECT gen_random_uuid(), $1, n::text, 'image', 'RUNNING', 'ERROR', 'b', 'Unreachable', $2"
        " FROM generate_series(1, 120) AS n RETURNING id::text",
        owner,
        {"policy.healthy": {**SINCE, "status": "False", "reason": "Unreachable"}},
    )
    watch, woken = two.watch(Limits(101, 1000))
    lost = WorkspaceId(ids[0]["id"])
    returned = await two.nodes.returned()
    await two.database.execute("UPDATE workspaces SET error_reason = 'DataLost' WHERE id = $1", lost)
    recovered, refused = await watch.desired.recover_with_node([lost])
    assert (len(returned), recovered, refused) == (120, [], {})
    await watch.heal()
    # Of 101 places, one each is taken by what runs on `a` and on `b`.
    assert len(woken.ids) == 99
    left = await two.database.fetchval("SELECT count(*) FROM workspaces WHERE error_reason = 'Unreachable'")
    assert left == 120 - 1 - 99


async def test_an_operation_on_a_lost_node_ends_unreachable(two: Two) -> None:
    await two.database.execute("UPDATE workspaces SET desired_state = 'STANDBY' WHERE id = $1", two.ids["b"])
    step = await two.here.step(two.ids["b"])
    assert (step.kind, step.operation, step.task_queue) == (StepKind.RUN, Operation.STOPPING, "node-b")
    await two.lose()
    assert (await two.here.step(two.ids["b"])).kind is StepKind.WAIT
    row = await two.row("b")
    assert (row.phase, row.error_reason, row.operation) == (Phase.ERROR, ErrorReason.UNREACHABLE, Operation.NONE)
    outcome = await two.database.fetchval("SELECT outcome FROM operations WHERE id = $1", step.op_id)
    assert outcome == "FAILED"


async def test_a_deletion_waits_for_its_node(two: Two) -> None:
    """It is in ERROR while the node is lost, and is carried out when it returns: nothing stays behind."""
    await DesiredStates(two.database, Limits(9, 9)).delete(two.ids["b"])
    await two.lose()
    await two.here.step(two.ids["b"])
    assert (await two.row("b")).phase is Phase.ERROR
    assert await two.nodes.beat("b", None)
    watch, _ = two.watch()
    await look(watch)
    step = await two.on_b.step(two.ids["b"])
    assert (step.kind, step.operation) == (StepKind.RUN, Operation.DELETING)


async def test_a_restore_that_lost_its_node_goes_elsewhere(two: Two) -> None:
    """What was never complete on it is no home: the archive is, and it can be restored on any node."""
    key = f"{two.ids['b']}/{uuid4()}/home.tar.zst"
    absent = {"status": "False", "reason": "RestoreIncomplete", "message": ""}
    await two.database.execute(
        "UPDATE workspaces SET archive_key = $2, phase = 'ARCHIVED',"
        " home_ctx = jsonb_build_object('restoring', $2::text),"
        " conditions = jsonb_set(conditions, '{storage.volume_ready}', conditions -> 'storage.volume_ready' || $3)"
        " WHERE id = $1",
        two.ids["b"],
        key,
        absent,
    )
    await two.lose()

    class Archives:
        async def observe(self, _: str) -> object:
            from domain.observation import Presence

            return Presence.PRESENT

    here = Reconciler(two.here.store, two.here.runtime, Archives(), "a")  # type: ignore[arg-type]
    step = await here.step(two.ids["b"])
    assert (step.kind, step.operation, step.task_queue) == (StepKind.RUN, Operation.RESTORING, "node-a")


async def test_a_node_that_is_given_up_is_data_lost_and_a_person_goes_on(two: Two) -> None:
    """Only a person can say that it will not return; a node that answers can't be given up."""
    assert not await two.nodes.remove("b")
    await two.lose()
    await two.here.step(two.ids["b"])
    assert await two.nodes.remove("b")
    watch, woken = two.watch()
    await look(watch)
    assert woken.ids == [two.ids["b"]]
    await two.here.step(two.ids["b"])
    assert (await two.row("b")).error_reason is ErrorReason.DATA_LOST
    await DesiredStates(two.database, Limits(9, 9)).recover(two.ids["b"])
    await _run(two.here, two.ids["b"])
    row = await two.row("b")
    assert (row.phase, row.node) == (Phase.RUNNING, "a")
    assert not await two.nodes.beat("b", None)
    assert await two.nodes.register(Registration("b", "a new engine", "127.0.0.1", None, 2, 1 << 32))


async def test_a_node_changes_its_engine_only_when_it_is_empty(two: Two) -> None:
    other = Registration("b", "another engine", "127.0.0.9", None, 2, 1 << 32)
    assert not await two.nodes.register(other)
    await two.database.execute("UPDATE workspaces SET phase = 'DELETED', desired_state = 'DELETED', deleted_at = now()")
    assert not await two.nodes.register(other), "another worker serves it"
    await two.silent("b")
    assert await two.nodes.register(other)
    entry = await two.nodes.get("b")
    assert entry
    assert (entry.address, entry.homes) == ("127.0.0.9", 0)


async def test_an_engine_without_its_data_is_not_the_same_engine(two: Two) -> None:
    """It has the same id, but not the marker: refused while homes are on that data, and its heartbeat does not count.
    A marker that somebody removed is no reason to refuse where homes are there."""
    known = Registration("b", "engine-b", "127.0.0.1", None, 2, 1 << 32, marker="data")
    assert await two.nodes.register(known), "from before there were markers"
    await two.silent("b")
    assert not await two.nodes.register(replace(known, marker="no data"))
    assert not await two.nodes.beat("b", None, "no data")
    assert await two.nodes.beat("b", None, "data")
    assert await two.nodes.register(replace(known, marker="new", holds_homes=True))
    assert await two.nodes.beat("b", None, "new")


async def test_a_lone_node_is_never_lost(two: Two) -> None:
    """One host works as it always did: a worker that was away for an hour finds everything as it left it."""
    await two.database.execute("DELETE FROM nodes WHERE name = 'b'")
    await two.silent("a")
    two.here.runtime.unreachable = True  # type: ignore[attr-defined]
    watch, woken = two.watch()
    await look(watch)
    assert woken.ids == []
    await two.here.step(two.ids["a"])
    assert (await two.row("a")).phase is Phase.RUNNING


async def test_who_could_not_hear_declares_nobody_lost(two: Two) -> None:
    """After PostgreSQL was away every node looks silent, and so does all that a new leader has not heard yet: each gets
    the time to speak first."""
    await two.silent("a")
    await two.silent("b")
    watch, woken = two.watch()
    watch._hears_since = None
    await look(watch)
    assert woken.ids == []
    await two.here.step(two.ids["b"])
    assert (await two.row("b")).error_reason is None
    assert await two.database.fetchval("SELECT count(lost_at) FROM nodes") == 0


async def test_a_new_leader_need_not_listen_first_where_another_node_was_heard(two: Two) -> None:
    """The leader went with its node: what the others said meanwhile proves that the database heard. One that has just
    begun to speak again, as after the database was away, proves nothing."""
    await two.silent("b")
    watch, woken = two.watch()
    watch._hears_since = None
    for heard_since, seen_at in (("1 second", "0 seconds"), ("1 hour", "10 seconds")):
        await two.database.execute(
            "UPDATE nodes SET heard_since = now() - $1::text::interval, seen_at = now() - $2::text::interval"
            " WHERE name = 'a'",
            heard_since,
            seen_at,
        )
        await look(watch)
        assert woken.ids == []
    await two.database.execute(
        "UPDATE nodes SET heard_since = now() - interval '1 hour', seen_at = now() WHERE name = 'a'"
    )
    assert await two.nodes.beat("a", None)
    await look(watch)
    assert woken.ids == [two.ids["b"]]


async def test_a_node_that_registers_after_an_outage_proves_nothing(two: Two) -> None:
    """The whole site was off for an hour, and one node is up before the others: that it was heard without a gap an hour
    ago says nothing about who could have been heard since. The others get the time to come back."""
    await two.database.execute(
        "UPDATE nodes SET heard_since = now() - interval '1 day', seen_at = now() - interval '1 hour'"
    )
    assert await two.nodes.register(Registration("a", "engine-a", "127.0.0.1", None, 2, 1 << 32))
    assert await two.nodes.beat("a", None)
    watch, woken = two.watch()
    watch._hears_since = None
    await look(watch)
    assert woken.ids == []
    assert await two.database.fetchval("SELECT count(lost_at) FROM nodes") == 0


async def test_a_worker_that_is_restarted_leaves_no_gap(two: Two) -> None:
    assert await two.nodes.beat("a", None)
    heard = "SELECT heard_since FROM nodes WHERE name = 'a'"
    since = await two.database.fetchval(heard)
    assert await two.nodes.register(Registration("a", "engine-a", "127.0.0.1", None, 2, 1 << 32))
    assert await two.database.fetchval(heard) == since


async def test_beats_without_a_gap_are_remembered(two: Two) -> None:
    heard = "SELECT heard_since FROM nodes WHERE name = 'a'"
    assert await two.nodes.beat("a", None)
    since = await two.database.fetchval(heard)
    assert since is not None
    assert await two.nodes.beat("a", None)
    assert await two.database.fetchval(heard) == since
    await two.silent("a")
    assert await two.nodes.beat("a", None)
    assert await two.database.fetchval(heard) > since


async def test_what_is_under_way_on_a_lost_node_is_woken_too(two: Two) -> None:
    await two.database.execute("UPDATE workspaces SET desired_state = 'STANDBY' WHERE id = $1", two.ids["b"])
    assert (await two.here.step(two.ids["b"])).operation is Operation.STOPPING
    await two.silent()
    watch, woken = two.watch()
    await look(watch)
    assert woken.ids == [two.ids["b"]]


async def test_a_slow_recovery_keeps_nobody_from_noticing_the_next_loss(two: Two) -> None:
    """Many homes of one node are being recovered, and another node dies: it is declared lost all the same."""
    recovering = asyncio.Event()

    class Slow(Nodes):
        async def returned(self) -> list[WorkspaceId]:
            recovering.set()
            return await asyncio.Event().wait()  # type: ignore[return-value]

    watch, _ = two.watch()
    watch.nodes, watch.interval = Slow(two.database), 0.01
    running = asyncio.create_task(watch.run())
    try:
        async with asyncio.timeout(30):
            await recovering.wait()
            watch._hears_since = monotonic() - 60
            await two.silent()
            while not await two.database.fetchval("SELECT lost_at FROM nodes WHERE name = 'b'"):
                await asyncio.sleep(0.02)
    finally:
        await end([running])


async def test_an_operation_on_a_node_that_is_given_up_comes_to_an_end(two: Two) -> None:
    """Given up before anybody found it lost, while an operation waited there: it waits no longer."""
    await two.database.execute("UPDATE workspaces SET desired_state = 'STANDBY' WHERE id = $1", two.ids["b"])
    assert (await two.here.step(two.ids["b"])).operation is Operation.STOPPING
    await two.silent()
    assert await two.nodes.remove("b")
    watch, woken = two.watch()
    await look(watch)
    assert woken.ids == [two.ids["b"]]
    step = await two.here.reconcile(ReconcileInput(two.ids["b"], waiting=True))
    assert step.kind is StepKind.WAIT
    row = await two.row("b")
    assert (row.phase, row.error_reason, row.operation) == (Phase.ERROR, ErrorReason.UNREACHABLE, Operation.NONE)
    await watch.heal()
    await two.here.step(two.ids["b"])
    assert (await two.row("b")).error_reason is ErrorReason.DATA_LOST
