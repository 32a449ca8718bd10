"""Forward-only migrations: numbered SQL files, each in its own transaction, one process at a time."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from time import monotonic

import asyncpg
import structlog

from adapters.postgres.database import Connection, connect, translated

log = structlog.get_logger()

# Any constant will do, as long as it is not another lock's.
_LOCK = 0x636F6465687562
_CLOSE_SECONDS = 2.0
_LOCK_SECONDS = 2
_PAUSE_SECONDS = 1.0
_PATIENCE_SECONDS = 300.0


class MigrationError(Exception):
    """The database can't be brought to this version; the message says why."""


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return sha256(self.sql.encode()).hexdigest()


def migrations() -> list[Migration]:
    found = (files("adapters.postgres") / "migrations").iterdir()
    return [
        Migration(int(f.name.split("_", 1)[0]), f.name.removesuffix(".sql"), f.read_text())
        for f in sorted(found, key=lambda f: f.name)
        if f.name.endswith(".sql")
    ]


async def migrate(url: str, *, up_to: int | None = None) -> list[str]:
    """Apply what is missing and return its names. Several processes may call it at once."""
    connection = await connect(url)
    try:
        with translated():
            return await _apply(connection, up_to)
    finally:
        with suppress(Exception):
            await connection.close(timeout=_CLOSE_SECONDS)


async def _apply(connection: Connection, up_to: int | None) -> list[str]:
    await connection.execute("SELECT pg_advisory_lock($1)", _LOCK, timeout=300)
    await connection.execute(
        "CREATE TABLE IF NOT EXISTS schema_migrations (version integer PRIMARY KEY, name text NOT NULL,"
        " checksum text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
    )
    rows = await connection.fetch("SELECT version, name, checksum FROM schema_migrations")
    applied = {row["version"]: row["checksum"] for row in rows}
    known = migrations()
    _check(applied, known)
    done = []
    for migration in known:
        if migration.version in applied or (up_to is not None and migration.version > up_to):
            continue
        await _run(connection, migration)
        log.info("migrated", migration=migration.name)
        done.append(migration.name)
    await _validate(connection)
    return done


async def _run(connection: Connection, migration: Migration) -> None:
    """While a statement waits for a table, all who come after it wait, too: so it waits briefly, and comes again. The
    version that still serves is not held up by a migration, nor a migration for ever by a long transaction."""
    deadline = monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            async with connection.transaction():
                await connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_SECONDS}s'")
                await connection.execute(migration.sql, timeout=600)
                await connection.execute(
                    "INSERT INTO schema_migrations (version, name, checksum) VALUES ($1, $2, $3)",
                    migration.version,
                    migration.name,
                    migration.checksum,
                )
        except asyncpg.LockNotAvailableError as error:
            if monotonic() > deadline:
                raise MigrationError(
                    f"migration {migration.name} got no lock within {_PATIENCE_SECONDS:g} s: end the long "
                    "transactions (pg_stat_activity) and start again"
                ) from error
            log.warning("migration_waits_for_a_lock", migration=migration.name)
            await asyncio.sleep(_PAUSE_SECONDS)
        else:
            return


async def _validate(connection: Connection) -> None:
    """Constraints that were added NOT VALID hold for new rows; here all others are looked at, and nobody waits for it.
    In the migration's own transaction they would have to: it keeps the table for itself until it ends."""
    found = await connection.fetch(
        "SELECT conrelid::regclass::text AS relation, quote_ident(conname) AS name FROM pg_constraint"
        " WHERE NOT convalidated AND connamespace = current_schema()::regnamespace"
    )
    for constraint in found:
        try:
            async with connection.transaction():
                await connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_SECONDS}s'")
                await connection.execute(
                    f"ALTER TABLE {constraint['relation']} VALIDATE CONSTRAINT {constraint['name']}", timeout=600
                )
        except (asyncpg.LockNotAvailableError, asyncpg.CheckViolationError) as error:
            # No reason not to start: it is enforced from now on, and looked at again at the next start.
            log.warning("constraint_not_validated", constraint=constraint["name"], error=str(error))


def _check(applied: dict[int, str], known: list[Migration]) -> None:
    by_version = {migration.version: migration for migration in known}
    for version, checksum in sorted(applied.items()):
        migration = by_version.get(version)
        if migration is None:
            # A newer codehub migrated this database; its migrations keep the previous version working.
            log.warning("schema_is_newer", version=version)
        elif migration.checksum != checksum:
            raise MigrationError(
                f"migration {migration.name} was applied with other contents: "
                "this database was made by a different build of codehub"
            )
