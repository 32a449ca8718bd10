"""A schema changes while the former version still serves: nothing is taken from it, and it is never held up."""

import asyncio
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest
import structlog

from adapters.postgres import migrate as module
from adapters.postgres.migrate import Migration, MigrationError, migrate, migrations
from tests.api.world import serving

STATEMENTS = Path(__file__).parent / "statements"

# What a version that does not know of it would stumble over, and what holds a table for as long as it has rows.
FORBIDDEN = {
    "takes a table or column away": r"\bDROP\s+(TABLE|COLUMN|SCHEMA|VIEW)\b",
    "renames what the former version names": r"\bRENAME\b",
    "changes a type": r"\bALTER\s+COLUMN\s+\w+\s+(SET\s+DATA\s+)?TYPE\b",
    "refuses rows of the former version": r"\bSET\s+NOT\s+NULL\b",
    "a column that the former version does not fill": r"\bADD\s+COLUMN\s+\w+\s+(?![^,;]*DEFAULT)[^,;]*NOT\s+NULL",
    "removes a default": r"\bDROP\s+DEFAULT\b",
    "looks at every row while nobody else can": (
        r"\bALTER\s+TABLE\s+(workspaces|operations|audit)\b[^;]*?\bADD\s+CONSTRAINT\b(?![^;]*?\bNOT\s+VALID\b)"
    ),
    "rewrites data in bulk": r"^\s*(UPDATE|DELETE\s+FROM|TRUNCATE)\b",
}


@pytest.mark.parametrize("migration", migrations(), ids=lambda migration: migration.name)
def test_migrations_only_add(migration: Migration) -> None:
    """Destructive changes come a version later, when nobody uses the thing any more, and by an ADR."""
    # The bodies of functions are not run by the migration.
    text = re.sub(r"\$\$.*?\$\$", "", re.sub(r"--.*", "", migration.sql), flags=re.DOTALL)
    broken = [why for why, pattern in FORBIDDEN.items() if re.search(pattern, text, re.IGNORECASE | re.MULTILINE)]
    assert broken == []


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE a DROP COLUMN b",
        "ALTER TABLE a RENAME COLUMN b TO c",
        "ALTER TABLE a ALTER COLUMN b TYPE bigint",
        "ALTER TABLE a ADD COLUMN b text NOT NULL, ADD COLUMN c int",
        "UPDATE a SET b = 1",
        "ALTER TABLE operations ADD CONSTRAINT b CHECK (c > 0)",
    ],
)
def test_the_rule_has_teeth(sql: str) -> None:
    with pytest.raises(AssertionError):
        test_migrations_only_add(Migration(9999, "bad", sql))


@pytest.mark.parametrize("recorded", sorted(STATEMENTS.glob("*.json")), ids=lambda path: path.stem)
async def test_statements_of_former_versions_still_work(recorded: Path, database_url: str) -> None:
    """Each is executed on the schema of today, on rows that it finds, with the triggers of today. A value that a
    constraint refuses is refused as it always was; what is not there any more is an error of another class."""
    connection = await asyncpg.connect(database_url, ssl=False)
    broken = []
    try:
        await connection.execute(_ROWS.replace("{id}", _ID))
        for statement in json.loads(recorded.read_text()):
            try:
                async with connection.transaction():
                    prepared = await connection.prepare(statement)
                    await prepared.fetch(*(_example(one.name) for one in prepared.get_parameters()))
                    raise _Undone  # noqa: TRY301
            except (_Undone, asyncpg.IntegrityConstraintViolationError, asyncpg.DataError):
                continue
            except asyncpg.PostgresError as error:
                broken.append((statement, str(error)))
    finally:
        await connection.close()
    assert broken == []


class _Undone(Exception):
    """What a statement did is of no use to the next one."""


# Everything has the same id, so that whatever a statement looks for is there.
_ID = "11111111-1111-4111-8111-111111111111"
_ROWS = """
INSERT INTO users (id, username, password_hash, is_admin) VALUES ('{id}', 'x', 'x', true);
INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state, phase, node)
    VALUES ('{id}', '{id}', 'x', 'x', 'STANDBY', 'RUNNING', 'x');
INSERT INTO api_tokens (id, user_id, name, token_hash) VALUES ('{id}', '{id}', 'x', decode(repeat('78', 32), 'hex'));
INSERT INTO nodes (name, engine_id) VALUES ('x', 'x');
"""
_EXAMPLES: dict[str, object] = {
    "uuid": _ID,
    "text": "x",
    "bool": True,
    "int2": 1,
    "int4": 1,
    "int8": 1,
    "float8": 1.0,
    "numeric": 1,
    "bytea": b"x" * 32,
    "json": "{}",
    "jsonb": "{}",
    "interval": timedelta(seconds=1),
    "timestamptz": datetime(2026, 1, 1, tzinfo=UTC),
}


def _example(kind: str) -> object:
    return [_EXAMPLES[kind.removesuffix("[]")]] if kind.endswith("[]") else _EXAMPLES[kind]


async def test_a_schema_of_a_newer_version_is_served(database_url: str) -> None:
    """What it does not know it leaves alone, says so once, and works: the way back from an upgrade."""
    connection = await asyncpg.connect(database_url, ssl=False)
    try:
        await connection.execute("ALTER TABLE workspaces ADD COLUMN of_tomorrow text NOT NULL DEFAULT 'new'")
        await connection.execute(
            "INSERT INTO schema_migrations (version, name, checksum) VALUES (9999, '9999_of_tomorrow', 'x')"
        )
        with structlog.testing.capture_logs() as logs:
            assert await migrate(database_url) == []
        assert [(line["event"], line["version"]) for line in logs] == [("schema_is_newer", 9999)]
        async with serving(database_url) as api:
            alice = await api.person("alice")
            workspace = await alice.workspace()
            path = f"/api/v1/workspaces/{workspace}"
            await connection.execute("""UPDATE workspaces SET home_ctx = '{"of_tomorrow": "new"}'""")
            assert (await alice("PATCH", path, {"desired_state": "RUNNING"})).status == 200
            assert (await alice("GET", path)).json["desired_state"] == "RUNNING"
        assert await connection.fetchval("SELECT of_tomorrow FROM workspaces") == "new"
    finally:
        await connection.close()


async def test_rows_of_the_former_version_are_taken(empty_database_url: str) -> None:
    """Rows that were there before, and rows that an old process inserts afterwards, without what it does not know."""
    former = int(min(path.stem for path in STATEMENTS.glob("*.json")))
    await migrate(empty_database_url, up_to=former)
    connection = await asyncpg.connect(empty_database_url, ssl=False)
    insert = (
        "INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state)"
        " SELECT gen_random_uuid(), id, $1, 'image', 'RUNNING' FROM users"
    )
    try:
        await connection.execute("INSERT INTO users (username, password_hash) VALUES ('alice', '')")
        await connection.execute(insert, "before")
        await migrate(empty_database_url)
        await connection.execute(insert, "after")
        await connection.execute("UPDATE workspaces SET desired_state = 'STANDBY'")
        assert await connection.fetchval("SELECT count(*) FROM workspaces") == 2
    finally:
        await connection.close()


async def test_a_migration_holds_nobody_up(empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long transaction of the old version keeps the migration waiting, and the migration keeps nobody waiting."""
    former = int(min(path.stem for path in STATEMENTS.glob("*.json")))
    await migrate(empty_database_url, up_to=former)
    monkeypatch.setattr(module, "_LOCK_SECONDS", 1)
    monkeypatch.setattr(module, "_PAUSE_SECONDS", 0.2)
    long, short = [await asyncpg.connect(empty_database_url, ssl=False) for _ in range(2)]
    migrating: asyncio.Task[list[str]] | None = None
    try:
        transaction = long.transaction()
        await transaction.start()
        await long.execute("SELECT count(*) FROM workspaces")
        migrating = asyncio.create_task(migrate(empty_database_url))
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'"
        async with asyncio.timeout(30):
            while not await short.fetchval(waiting):
                await asyncio.sleep(0.02)
            # Comes after the migration in the queue for the table, and gets its turn all the same.
            await short.execute("SELECT count(*) FROM workspaces")
        assert not migrating.done()
        await transaction.rollback()
        assert await migrating
    finally:
        if migrating is not None:
            migrating.cancel()
        await long.close()
        await short.close()


async def test_a_migration_that_gets_no_lock_says_so(empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    former = int(min(path.stem for path in STATEMENTS.glob("*.json")))
    await migrate(empty_database_url, up_to=former)
    monkeypatch.setattr(module, "_LOCK_SECONDS", 1)
    monkeypatch.setattr(module, "_PATIENCE_SECONDS", 0.0)
    long = await asyncpg.connect(empty_database_url, ssl=False)
    try:
        async with long.transaction():
            await long.execute("SELECT count(*) FROM workspaces")
            with pytest.raises(MigrationError, match="pg_stat_activity"):
                await migrate(empty_database_url)
    finally:
        await long.close()
    assert await migrate(empty_database_url), "nothing of it was done"


async def test_rows_that_were_there_are_checked_with_the_table_open(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A constraint comes NOT VALID and is validated after its migration; a row that breaks it stops nobody's start."""
    await migrate(empty_database_url)
    monkeypatch.setattr(module, "_LOCK_SECONDS", 1)
    connection, other = [await asyncpg.connect(empty_database_url, ssl=False) for _ in range(2)]
    pending = "SELECT conname FROM pg_constraint WHERE NOT convalidated"
    try:
        assert await connection.fetch(pending) == []
        await connection.execute(
            "INSERT INTO audit (subject, subject_id, actor_kind, action) SELECT 'user', id, '', ''"
            " FROM (SELECT gen_random_uuid() AS id) AS one"
        )
        await connection.execute("ALTER TABLE audit ADD CONSTRAINT bad CHECK (actor_kind <> '') NOT VALID")
        assert await migrate(empty_database_url) == []
        assert [row["conname"] for row in await connection.fetch(pending)] == ["bad"]
        await connection.execute("UPDATE audit SET actor_kind = 'user'")
        async with other.transaction():
            await other.execute("UPDATE audit SET actor_kind = 'system'")
            await migrate(empty_database_url)
            assert await connection.fetch(pending) == [], "it waited for a transaction that writes to the table"
    finally:
        await connection.close()
        await other.close()


async def test_many_may_migrate_at_once(empty_database_url: str) -> None:
    """Each migration is applied once, by whoever is first; the others find it done."""
    done = await asyncio.gather(*(migrate(empty_database_url) for _ in range(8)))
    names = [migration.name for migration in migrations()]
    assert sorted(name for one in done for name in one) == names
    connection = await asyncpg.connect(empty_database_url, ssl=False)
    try:
        rows = await connection.fetch("SELECT name FROM schema_migrations ORDER BY version")
        assert [row["name"] for row in rows] == names
    finally:
        await connection.close()
