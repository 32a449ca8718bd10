"""Forward-only migrations: numbered SQL files, each in its own transaction, one process at a time."""

from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files

import structlog

from adapters.postgres.database import Connection, connect, translated

log = structlog.get_logger()

# Any constant will do, as long as it is not another lock's.
_LOCK = 0x636F6465687562
_CLOSE_SECONDS = 2.0


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
        async with connection.transaction():
            await connection.execute(migration.sql, timeout=600)
            await connection.execute(
                "INSERT INTO schema_migrations (version, name, checksum) VALUES ($1, $2, $3)",
                migration.version,
                migration.name,
                migration.checksum,
            )
        log.info("migrated", migration=migration.name)
        done.append(migration.name)
    return done


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
