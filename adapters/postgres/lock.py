"""The session lock of a leader. A session that says nothing for a few seconds is ended by the server, so a leader
that is cut off loses the lock even when nobody closes its connection."""

from dataclasses import dataclass
from datetime import datetime

import asyncpg

from adapters.postgres.database import Connection, Database, translated

IDLE_SECONDS = 3.0
"""Whoever waits for the lock asks every COORDINATOR_RETRY_INTERVAL (5 s): both together leave time up to ten."""
PING_INTERVAL = 0.75
_PING_TIMEOUT = 2.0
"""Both together are less than the server's limit: a leader that is cut off gives up before another one can lead."""


async def open_lock_connection(url: str) -> Connection:
    with translated():
        return await asyncpg.connect(
            url, timeout=5, command_timeout=5, server_settings={"idle_session_timeout": f"{IDLE_SECONDS * 1000:.0f}ms"}
        )


async def try_lock(connection: Connection, lock_id: int) -> bool:
    with translated():
        return bool(await connection.fetchval("SELECT pg_try_advisory_lock($1)", lock_id))


async def keep_alive(connection: Connection) -> None:
    with translated():
        await connection.execute("SELECT 1", timeout=_PING_TIMEOUT)


async def record_holder(connection: Connection, lock_name: str, holder_id: str) -> None:
    with translated():
        await connection.execute(
            "INSERT INTO system_locks (lock_name, holder_id, acquired_at) VALUES ($1, $2, now())"
            " ON CONFLICT (lock_name) DO UPDATE SET holder_id = $2, acquired_at = now()",
            lock_name,
            holder_id,
        )


@dataclass(frozen=True, slots=True)
class Holder:
    holder_id: str
    acquired_at: datetime
    seconds: float
    """Since then, by the database's clock."""
    alive: bool


async def current_holder(database: Database, lock_name: str, lock_id: int) -> Holder | None:
    """Who took the lock last, and whether anybody holds it now."""
    row = await database.fetchrow(
        """
        SELECT holder_id, acquired_at, extract(epoch FROM clock_timestamp() - acquired_at)::float8 AS seconds, EXISTS (
            SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND ((classid::bigint << 32) | objid::bigint) = $2) AS alive
        FROM system_locks WHERE lock_name = $1
        """,
        lock_name,
        lock_id,
    )
    return Holder(**row) if row else None
