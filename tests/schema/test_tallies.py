"""Numbers that are kept instead of counted are what a count would find: after anything, at any moment, in any order."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from uuid import UUID, uuid4

import asyncpg
import pytest

from adapters.postgres import migrate as migrating
from adapters.postgres.database import Database, PooledConnection, open_database
from adapters.postgres.desired_state import DesiredStates, Refusal, Refused
from adapters.postgres.migrate import migrate, migrations
from adapters.postgres.nodes import Nodes
from adapters.postgres.placements import Placements
from adapters.postgres.tallies import Tallies, take_together
from domain.limits import Limits
from domain.model import DesiredState, WorkspaceId
from tests.conftest import own_database
from tests.upgrade.test_backup import postgres

NODES = ("a", "b", "c")
OWNER = UUID(int=1)
MANY = 10**9

# One statement, one snapshot. Counted in other words than the triggers' own.
WRONG = """
SELECT * FROM (
    SELECT n.name,
        (SELECT COALESCE(sum(homes), 0) FROM tallies WHERE node = n.name) AS homes,
        (SELECT count(*) FROM workspaces WHERE node = n.name AND phase <> 'DELETED')
        + (SELECT count(*) FROM workspaces WHERE move_to = n.name AND node IS DISTINCT FROM n.name
           AND phase <> 'DELETED') AS found_homes,
        (SELECT COALESCE(sum(running), 0) FROM tallies WHERE node = n.name) AS running,
        (SELECT count(*) FROM workspaces WHERE (node = n.name OR move_to = n.name) AND phase <> 'DELETED'
         AND 'RUNNING' IN (phase, desired_state)) AS found_running,
        (SELECT COALESCE(sum(started), 0) FROM tallies) AS started,
        (SELECT count(*) FROM workspaces WHERE 'RUNNING' IN (phase, desired_state) AND error_reason IS NULL
         AND deleted_at IS NULL) AS found_started
    FROM nodes n
) AS sums WHERE (homes, running, started) <> (found_homes, found_running, found_started)
"""

INSERT = """
INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state, phase, node, archive_key)
VALUES ($1, $2, $1::uuid::text, 'image', $3, $4, $5, 'key')
"""

# What a constraint refuses is refused, and undone.
CHANGE = """
UPDATE workspaces SET phase = $2, desired_state = $3, deleted_at = CASE WHEN $3 = 'DELETED' THEN now() END,
    error_reason = $4, node = $5, move_to = $6
WHERE id = ANY($1::uuid[])
"""
PHASES = ("PENDING", "ARCHIVED", "STANDBY", "RUNNING", "ERROR", "DELETING", "DELETED")
DESIRED = ("RUNNING", "STANDBY", "ARCHIVED", "DELETED")


@pytest.fixture
async def fleet(database_url: str) -> AsyncIterator[Database]:
    opened = await open_database(database_url, max_size=20)
    await _furnish(opened)
    yield opened
    await opened.close()


async def _furnish(database: Database, rows: int = 12) -> None:
    await database.execute("INSERT INTO users (id, username, password_hash) VALUES ($1, 'alice', '')", OWNER)
    for name in NODES:
        await database.execute("INSERT INTO nodes (name, engine_id, capacity) VALUES ($1, $1, 6)", name)
    for number in range(rows):
        await database.execute(INSERT, uuid4(), OWNER, "RUNNING", "RUNNING", NODES[number % 3])


class Dice:
    """Something that somebody does: codehub itself in its own way, or anybody in any."""

    def __init__(self, database: Database, seed: int) -> None:
        self.database = database
        self.random = random.Random(seed)
        self.states = DesiredStates(database, Limits(8, 8))

    async def throw(self) -> None:
        kinds: list[Callable[[], Awaitable[object]]] = [
            self._change,
            self._change,
            self._change_several,
            self._make,
            self._remove,
            self._want,
            self._want,
            self._recover,
            self._drain,
            self._look_for_a_place,
            Tallies(self.database).recount,
        ]
        try:
            await self.random.choice(kinds)()
        except (Refused, asyncpg.CheckViolationError):
            return

    async def _ids(self, most: int) -> list[WorkspaceId]:
        rows = await self.database.fetch("SELECT id FROM workspaces ORDER BY id")
        chosen = self.random.sample(rows, min(most, len(rows)))
        return [WorkspaceId(str(row["id"])) for row in chosen]

    async def _change(self, most: int = 1) -> None:
        ids = await self._ids(most)
        async with self.database.transaction() as connection:
            # Nobody waits for a row while holding others: of what is waited for, only lines are left.
            held = "SELECT id FROM workspaces WHERE id = ANY($1::uuid[]) FOR UPDATE SKIP LOCKED"
            ids = [WorkspaceId(str(row["id"])) for row in await connection.fetch(held, ids)]
            await self._changed(connection, ids)
            if self.random.random() < 0.3:
                await take_together(connection, MANY)
            if self.random.random() < 0.3:
                await self._changed(connection, ids)
            if self.random.random() < 0.1:
                raise Refused(Refusal.IN_ERROR)  # and all of it is undone

    async def _changed(self, connection: PooledConnection, ids: list[WorkspaceId]) -> None:
        phase, desired = self.random.choice(PHASES), self.random.choice(DESIRED)
        error = self.random.choice([None, "Timeout"]) if phase == "ERROR" else None
        places = (self.random.choice([*NODES, "unheard", None]) for _ in range(2))
        await connection.execute(CHANGE, ids, phase, desired, error, *places)

    async def _change_several(self) -> None:
        await self._change(4)

    async def _make(self) -> None:
        arguments = self.random.choice(DESIRED[:3]), self.random.choice(PHASES), self.random.choice([*NODES, None])
        await self.database.execute(INSERT, uuid4(), OWNER, *arguments)

    async def _remove(self) -> None:
        await self.database.execute("DELETE FROM workspaces WHERE id = ANY($1::uuid[])", await self._ids(1))

    async def _want(self) -> None:
        for id_ in await self._ids(1):
            await self.states.set(id_, DesiredState(self.random.choice(DESIRED[:3])))

    async def _recover(self) -> None:
        for id_ in await self._ids(1):
            await self.states.recover(id_)

    async def _drain(self) -> None:
        node = self.random.choice(NODES)
        await Nodes(self.database).drain(node)
        await Nodes(self.database).send_off(node, 3)
        if self.random.random() < 0.5:
            await Nodes(self.database).uncordon(node)

    async def _look_for_a_place(self) -> None:
        async with Placements(self.database).deciding() as deciding:
            await deciding.places()
            await take_together(deciding.connection, MANY)


async def _is_right(database: Database) -> None:
    assert [dict(row) for row in await database.fetch(WRONG)] == []


@pytest.mark.parametrize("throws", [1500, pytest.param(20_000, marks=pytest.mark.full)])
@pytest.mark.timeout(900)
async def test_whatever_is_done_the_sums_are_the_counts(fleet: Database, throws: int) -> None:
    """Inserts, updates, deletes, moves between nodes, limits, drains, undone transactions, one after the other."""
    dice = Dice(fleet, throws)
    await _is_right(fleet)
    for number in range(throws):
        await dice.throw()
        if number % 10 == 0:
            await _is_right(fleet)
    await _is_right(fleet)
    assert await Tallies(fleet).recount() == 0


@pytest.mark.parametrize("throws", [200, pytest.param(2000, marks=pytest.mark.full)])
@pytest.mark.timeout(900)
async def test_side_by_side_the_sums_are_right_at_every_moment(fleet: Database, throws: int) -> None:
    """Eight at once on the same rows: nobody ends in a deadlock (which would be raised here), and in whatever snapshot
    is taken meanwhile the sums are the counts."""
    over = asyncio.Event()

    async def look() -> int:
        looks = 0
        while not over.is_set():
            await _is_right(fleet)
            looks += 1
        return looks

    async def play(seed: int) -> None:
        dice = Dice(fleet, seed)
        for _ in range(throws):
            await dice.throw()

    looking = asyncio.create_task(look())
    try:
        await asyncio.gather(*(play(seed) for seed in range(8)))
    finally:
        over.set()
    assert await looking > 10
    assert await Tallies(fleet).recount() == 0


async def test_lines_do_not_pile_up(fleet: Database) -> None:
    """Whoever reads many takes them together; then there is one for each node, and none that says nothing."""
    states = DesiredStates(fleet, Limits(100, 100))
    asleep = await fleet.fetchval("SELECT id FROM workspaces LIMIT 1")
    await fleet.execute("UPDATE workspaces SET phase = 'STANDBY' WHERE id = $1", asleep)
    for _ in range(300):
        await fleet.execute("UPDATE workspaces SET desired_state = 'STANDBY' WHERE id = $1", asleep)
        await states.set(WorkspaceId(str(asleep)), DesiredState.RUNNING)
    assert await fleet.fetchval("SELECT count(*) FROM tallies") < 300
    async with fleet.transaction() as connection:
        await take_together(connection, MANY)
    assert await fleet.fetchval("SELECT count(*) FROM tallies") == len(NODES)
    await _is_right(fleet)


async def test_what_went_past_the_triggers_is_put_right(fleet: Database) -> None:
    """As after a restore of data alone. A recount finds what is missing, says so, and then nothing more."""
    for change in (
        "UPDATE workspaces SET phase = 'ERROR', error_reason = 'Timeout' WHERE node = 'b'",
        "UPDATE workspaces SET node = 'b', phase = 'STANDBY', desired_state = 'STANDBY' WHERE node = 'a'",
        "DELETE FROM workspaces WHERE node = 'c'",
    ):
        await fleet.execute("ALTER TABLE workspaces DISABLE TRIGGER USER")
        await fleet.execute(change)
        await fleet.execute("ALTER TABLE workspaces ENABLE TRIGGER USER")
        assert await fleet.fetch(WRONG)
        assert await Tallies(fleet).recount() > 0
        await _is_right(fleet)
        assert await Tallies(fleet).recount() == 0
    await fleet.execute("TRUNCATE workspaces CASCADE")
    await _is_right(fleet)


async def test_two_recounts_at_once_correct_once(fleet: Database) -> None:
    """The second one waits, and finds what the first has put right."""
    await fleet.execute("DELETE FROM tallies")
    async with fleet.transaction() as connection:
        assert await connection.fetchval("SELECT recount_tallies()") == len(NODES)
        second = asyncio.create_task(Tallies(fleet).recount())
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory'"
        async with asyncio.timeout(30):
            while not await fleet.fetchval(waiting):
                assert not second.done(), "it did not wait"
                await asyncio.sleep(0.01)
    assert await second == 0
    await _is_right(fleet)


@pytest.mark.parametrize("undone", [False, True])
async def test_whoever_takes_lines_together_waits_for_nobody(fleet: Database, undone: bool) -> None:
    """Not even for whoever has taken the same lines and holds what others wait for; whether or not that comes to be."""
    first = await fleet.pool.acquire()
    try:
        transaction = first.transaction()
        await transaction.start()
        await take_together(first, MANY)
        async with asyncio.timeout(30), fleet.transaction() as second:
            await second.execute("UPDATE workspaces SET node = 'b' WHERE node = 'a'")
            await take_together(second, MANY)
        await _is_right(fleet)
        await (transaction.rollback() if undone else transaction.commit())
    finally:
        await fleet.pool.release(first)
    await _is_right(fleet)


async def test_rows_of_the_former_version_are_counted(empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were there, and those of a transaction that was under way when the migration came."""
    (added,) = [migration.version for migration in migrations() if migration.name.endswith("_tallies")]
    await migrate(empty_database_url, up_to=added - 1)
    monkeypatch.setattr(migrating, "_LOCK_SECONDS", 1)
    monkeypatch.setattr(migrating, "_PAUSE_SECONDS", 0.2)
    database = await open_database(empty_database_url)
    await _furnish(database)
    upgrading: asyncio.Task[list[str]] | None = None
    try:
        async with database.transaction() as connection:
            await connection.execute(INSERT, uuid4(), OWNER, "STANDBY", "STANDBY", "a")
            upgrading = asyncio.create_task(migrate(empty_database_url))
            waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'workspaces'::regclass"
            async with asyncio.timeout(30):
                while not await database.fetchval(waiting):
                    await asyncio.sleep(0.02)
        await upgrading
        await _is_right(database)
        await database.execute(INSERT, uuid4(), OWNER, "RUNNING", "STANDBY", "b")
        await _is_right(database)
    finally:
        if upgrading is not None:
            upgrading.cancel()
        await database.close()


async def test_restored_from_a_backup_they_are_right(
    fleet: Database, database_url: str, postgres_url: str, tmp_path: Path
) -> None:
    """As docs/upgrades.md has it, and they go on being right."""
    dump = tmp_path / "codehub.dump"
    await asyncio.to_thread(postgres, "pg_dump", "--format=custom", f"--file={dump}", database_url)
    async with own_database(postgres_url) as restored_url:
        await asyncio.to_thread(
            postgres, "pg_restore", "--no-owner", "--exit-on-error", f"--dbname={restored_url}", str(dump)
        )
        assert await migrate(restored_url) == []
        restored = await open_database(restored_url)
        try:
            await _is_right(restored)
            assert await restored.fetchval("SELECT sum(homes) FROM tallies") == 12
            dice = Dice(restored, 1)
            for _ in range(50):
                await dice.throw()
            await _is_right(restored)
        finally:
            await restored.close()
