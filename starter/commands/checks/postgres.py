"""PostgreSQL: reachable, new enough, migrated, with room for connections, its clock; and who leads."""

from datetime import UTC, datetime

import asyncpg

from adapters.postgres.database import Connection, DatabaseRefused, DatabaseUnavailable, connect, open_database
from adapters.postgres.lock import current_holder
from adapters.postgres.migrate import migrations
from settings import Settings
from starter.commands.checks.clock import compared
from starter.commands.checks.finding import CheckFailed, Finding, Findings, bad, latency, needed, ok, warning
from starter.patience import address_of

OLDEST = 14
"""The leader's lock needs idle_session_timeout."""
COORDINATOR_LOCK = "coordinator"


async def check_postgres(settings: Settings) -> Findings:
    url = needed(settings.database_url, "DATABASE_URL")
    connection = await _connected(url)
    try:
        took = await latency(lambda: connection.fetchval("SELECT 1"))
        yield ok(f"answers at {address_of(url)}", took)
        version = connection.get_server_version()
        yield judged(version.major, version.micro)
        yield await _schema(connection)
        yield await _connections(connection, settings.database_pool_size)
        asked = datetime.now(UTC)
        theirs = await connection.fetchval("SELECT clock_timestamp()")
        yield compared(theirs, asked + (datetime.now(UTC) - asked) / 2)
    finally:
        await connection.close()


def judged(major: int, minor: int) -> Finding:
    if major >= OLDEST:
        return ok(f"version {major}.{minor}")
    return bad(f"version {major} is too old", f"Use PostgreSQL {OLDEST} or newer.")


async def check_leader(settings: Settings) -> Findings:
    """Of the coordinator: without one, nothing is noticed by itself."""
    database = await open_database(needed(settings.database_url, "DATABASE_URL"), max_size=1)
    start = "Start a worker (codehub worker): one of them leads within seconds."
    try:
        holder = await current_holder(database, COORDINATOR_LOCK, settings.coordinator_lock_id)
    except asyncpg.UndefinedTableError:
        holder = None
    except (DatabaseUnavailable, asyncpg.PostgresError) as error:
        raise CheckFailed("can't be known while PostgreSQL does not answer", "Mend PostgreSQL first.") from error
    finally:
        await database.close()
    if holder is None or not holder.alive:
        last = f"; the last one was {holder.holder_id}" if holder else ""
        yield bad(f"nobody leads{last}", start)
    else:
        yield ok(f"{holder.holder_id} leads since {holder.acquired_at.astimezone():%Y-%m-%d %H:%M:%S}")


async def _connected(url: str) -> Connection:
    try:
        return await connect(url)
    except DatabaseUnavailable as error:
        raise CheckFailed(f"{address_of(url)}: {error}", "Start it, or correct DATABASE_URL.") from error
    except DatabaseRefused as error:
        advice = "Correct user, password and database in DATABASE_URL; a database that is missing: createdb."
        raise CheckFailed(f"{address_of(url)}: {error}", advice) from error


async def _schema(connection: Connection) -> Finding:
    try:
        rows = await connection.fetch("SELECT version, checksum FROM schema_migrations")
    except asyncpg.UndefinedTableError:
        rows = []
    applied = {row["version"]: row["checksum"] for row in rows}
    known = migrations()
    missing = [one.name for one in known if one.version not in applied]
    changed = [one.name for one in known if applied.get(one.version, one.checksum) != one.checksum]
    if changed:
        return bad(
            f"migration {changed[0]} was applied with other contents",
            "This database was made by a different build of codehub: run that one.",
        )
    if missing:
        return bad(f"schema: {len(missing)} migrations are missing ({missing[0]} …)", "Run `codehub migrate`.")
    if len(applied) > len(known):
        return warning("the schema is of a newer codehub", "Upgrade this one when you can; it works meanwhile.")
    return ok(f"schema is up to date ({len(known)} migrations)")


async def _connections(connection: Connection, pool: int) -> Finding:
    row = await connection.fetchrow(
        "SELECT current_setting('max_connections')::int AS most,"
        " (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS used"
    )
    most, used = (row["most"], row["used"]) if row else (0, 0)
    told = f"{used} of {most} connections in use"
    if most - used < pool:
        return warning(f"{told}; one process wants up to {pool}", "Raise max_connections, or lower DATABASE_POOL_SIZE.")
    return ok(told)
