"""A drain and what goes wrong on the way: what failed or was deleted holds up no other home, and is named."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from uuid import uuid4

import pytest

from adapters.postgres.database import Database, open_database
from adapters.postgres.desired_state import DesiredStates
from adapters.postgres.nodes import Nodes, Registration
from adapters.postgres.workspaces import WorkspaceStore
from coordinator.nodewatch import NodeWatch
from domain.apply import apply
from domain.judge import judge
from domain.limits import Limits
from domain.model import DesiredState, ErrorReason, Operation, OperationId, Phase, WorkspaceId
from domain.observation import UNKNOWN_RESOURCES, Observation, Presence
from domain.plan import decide
from tests.api.world import RecordedWakes
from tests.domain.rows import DELETED_AT, NOW, OP, formerly, row, seen

AT_ONCE = 4
AT_LATEST = 10.0
LEAVING = "SELECT count(*) FROM workspaces WHERE move_to IS NOT NULL"


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = await open_database(database_url)
    for name in ("a", "b"):
        assert await Nodes(opened).register(Registration(name, f"engine-{name}", "127.0.0.1", None, 2, 1 << 32))
    assert await Nodes(opened).drain("a")
    yield opened
    await opened.close()


async def _homes(database: Database, number: int) -> list[WorkspaceId]:
    """STANDBY, on node `a`."""
    owner = await database.fetchval(
        "INSERT INTO users (username, password_hash) VALUES ($1, '') RETURNING id", f"user-{uuid4()}"
    )
    rows = await database.fetch(
        "INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state, phase, node)"
        " SELECT gen_random_uuid(), $1, n::text, 'image', 'STANDBY', 'STANDBY', 'a' FROM generate_series(1, $2) AS n"
        " RETURNING id",
        owner,
        number,
    )
    return [WorkspaceId(str(found["id"])) for found in rows]


@pytest.mark.parametrize(
    "over",
    [
        "phase = 'ERROR', error_reason = 'Timeout'",
        "phase = 'DELETED', desired_state = 'DELETED', deleted_at = now()",
        "phase = 'DELETING', desired_state = 'DELETED', deleted_at = now()",
    ],
)
async def test_homes_that_failed_on_the_way_hold_up_no_other(database: Database, over: str) -> None:
    """As many as leave at a time: those that were marked by a version that did not free their places, too."""
    await _homes(database, 2 * AT_ONCE)
    nodes = Nodes(database)
    first = await nodes.send_off("a", AT_ONCE)
    assert (len(first), await nodes.send_off("a", AT_ONCE)) == (AT_ONCE, [])
    await database.execute(f"UPDATE workspaces SET {over} WHERE id = ANY($1::uuid[])", first)
    second = await nodes.send_off("a", AT_ONCE)
    assert len(second) == AT_ONCE
    assert set(first).isdisjoint(second)
    entry = await nodes.get("a")
    assert entry
    assert entry.leaving == (2 * AT_ONCE if "DELETING" in over else AT_ONCE)


@pytest.mark.parametrize("gone", ["lost_at", "cordoned_at", "removed_at"])
async def test_homes_on_their_way_to_a_node_that_is_gone_hold_up_no_other(database: Database, gone: str) -> None:
    """They wait in the store for any place: that is no reason for the others to stay. Who has not left yet is sent
    somewhere else; with nowhere to go, the drain says so instead of waiting in silence."""
    await _homes(database, 3 * AT_ONCE)
    nodes = Nodes(database)
    first = await nodes.send_off("a", AT_ONCE)
    at_home, in_store = first[0], first[1:]
    await database.execute(
        "UPDATE workspaces SET phase = 'ARCHIVED', node = NULL, archive_key = 'key' WHERE id = ANY($1::uuid[])",
        in_store,
    )
    await database.execute(f"UPDATE nodes SET {gone} = now() WHERE name = 'b'")
    assert await nodes.send_off("a", AT_ONCE) == []
    entry = await nodes.get("a")
    assert entry
    assert "no other node" in (entry.drain_message or "")
    assert await nodes.register(Registration("c", "engine-c", "127.0.0.1", None, 2, 1 << 32))
    second = await nodes.send_off("a", AT_ONCE)
    assert len(second) == AT_ONCE
    kept = {
        row["id"]: row["move_to"]
        for row in await database.fetch("SELECT id::text, move_to FROM workspaces WHERE id = ANY($1::uuid[])", first)
    }
    assert {kept[home] for home in in_store} == {None}
    assert kept[at_home] == ("c" if at_home in second else None)


async def test_a_home_whose_move_failed_keeps_no_place_and_is_sent_off_again(database: Database) -> None:
    """The operation fails for good: the place elsewhere is free. Once a person recovers it, it leaves as any other."""
    (home,) = await _homes(database, 1)
    nodes, store = Nodes(database), WorkspaceStore(database)
    assert await nodes.send_off("a", AT_ONCE) == [home]
    op_id = OperationId(str(uuid4()))
    await database.execute(
        "UPDATE workspaces SET operation = 'ARCHIVING', op_id = $2, op_started_at = now(), archive_op_id = $2"
        " WHERE id = $1",
        home,
        op_id,
    )
    await store.fail(home, op_id, ErrorReason.ACTION_FAILED, "the store is full")
    failed = await store.load(home)
    assert failed
    assert (failed.phase, failed.move_to) == (Phase.ERROR, None)
    await database.execute("UPDATE workspaces SET phase = 'STANDBY', error_reason = NULL, error_count = 0")
    assert await nodes.send_off("a", AT_ONCE) == [home]


async def test_a_node_that_is_taken_back_right_before_its_turn_keeps_its_homes(database: Database) -> None:
    """Between the look at who is being drained and the look at who leaves."""
    await _homes(database, AT_ONCE)

    class TakenBack(Nodes):
        async def draining(self) -> Sequence[str]:
            names = await Nodes.draining(self)
            for name in names:
                assert await self.uncordon(name)
            return names

    watch = NodeWatch(TakenBack(database), DesiredStates(database, Limits(9, 9)), RecordedWakes())  # type: ignore[arg-type]
    await watch.send_off()
    assert await database.fetchval(LEAVING) == 0


async def test_a_node_that_is_taken_back_while_its_homes_are_sent_off_keeps_them(database: Database) -> None:
    """It waits for them to be on their way, and takes them back."""
    await _homes(database, AT_ONCE)
    nodes = Nodes(database)
    async with asyncio.timeout(AT_LATEST):
        async with database.transaction() as connection:
            # Who leaves is counted: until that can be written, nobody is on the way.
            await connection.execute("LOCK TABLE tallies IN SHARE MODE")
            leaving = asyncio.create_task(nodes.send_off("a", AT_ONCE))
            await _waits(database, 1)
            taken_back = asyncio.create_task(nodes.uncordon("a"))
            await _waits(database, 2, over=taken_back)
        assert (len(await leaving), await taken_back) == (AT_ONCE, True)
    assert await database.fetchval(LEAVING) == 0


async def test_a_node_that_somebody_is_changing_is_passed_over(database: Database) -> None:
    """Whoever places homes waits for whoever sends them off: that one waits for nobody. Its turn comes again."""
    homes = await _homes(database, 1)
    nodes = Nodes(database)
    async with database.transaction() as connection, asyncio.timeout(AT_LATEST):
        await connection.execute("UPDATE nodes SET seen_at = now() WHERE name = 'a'")
        assert await nodes.send_off("a", AT_ONCE) == []
    assert await nodes.send_off("a", AT_ONCE) == homes


async def _waits(database: Database, many: int, over: "asyncio.Task[bool] | None" = None) -> None:
    """Until so many wait for a lock, or whoever should is over without."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    while await database.fetchval(waiting) < many and not (over and over.done()):
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("operation", [Operation.NONE, Operation.STOPPING, Operation.ARCHIVING])
def test_what_goes_nowhere_keeps_no_place(operation: Operation) -> None:
    """Its node is lost, it took too long, or its owner deletes it."""
    leaving = row(
        operation,
        phase=Phase.STANDBY,
        desired_state=DesiredState.STANDBY,
        move_to="n2",
        archive_op_id=OP,
        conditions=formerly(volume=True),
    )
    lost = Observation(UNKNOWN_RESOURCES, Presence.UNKNOWN, node_lost=True)
    deleted = row(
        Operation.NONE, phase=Phase.STANDBY, desired_state=DesiredState.DELETED, deleted_at=DELETED_AT, move_to="n2"
    )
    for ws, seeing in ((leaving, lost), (deleted, seen(Presence.PRESENT)), (deleted, seen())):
        judgement = judge(ws, seeing, NOW)
        after = apply(ws, judgement, decide(ws, judgement, seeing, NOW), seeing, NOW, OP)
        assert after.move_to is None, after
