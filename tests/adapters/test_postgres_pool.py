"""A connection that goes back to the pool takes nothing along."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from adapters.postgres.actor import acting
from adapters.postgres.database import Database, open_database
from domain.audit import Actor, ActorKind


@pytest.fixture
async def single(database_url: str) -> AsyncIterator[Database]:
    """One connection: whoever comes next has that of the one before."""
    database = await open_database(database_url, max_size=1)
    yield database
    await database.close()


HELD = """
SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database
WHERE locktype = 'advisory' AND d.datname = current_database()
"""


async def test_a_transaction_that_is_cancelled_is_undone(single: Database) -> None:
    await single.execute("CREATE TABLE kept (one int)")
    written = asyncio.Event()

    async def write() -> None:
        async with single.transaction() as connection:
            await connection.execute("INSERT INTO kept VALUES (1)")
            await connection.execute("SELECT pg_advisory_xact_lock(7)")
            written.set()
            await connection.execute("SELECT pg_sleep(60)")

    writing = asyncio.create_task(write())
    await written.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert await single.fetchval("SELECT count(*) FROM kept") == 0
    # Of this database: others of the same server have theirs.
    assert await single.fetchval(HELD) == 0


async def test_whoever_comes_next_is_not_taken_for_the_one_before(single: Database) -> None:
    """The audit log names the actor of the transaction."""
    with acting(Actor(ActorKind.USER, "somebody")):
        async with single.transaction() as connection:
            told = await connection.fetchval("SELECT current_setting('codehub.actor', true)")
    assert "somebody" in told
    assert not await single.fetchval("SELECT current_setting('codehub.actor', true)")


async def test_a_statement_costs_one_round_trip(single: Database) -> None:
    """PostgreSQL itself counts what it was asked: nothing is asked besides."""
    await single.fetchval("SELECT 1")
    asked = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
    flush = "SELECT pg_stat_force_next_flush(), pg_stat_clear_snapshot()"
    await single.fetchrow(flush)
    before = await single.fetchval(asked)
    for _ in range(10):
        await single.fetchval("SELECT 1")
    await single.fetchrow(flush)
    assert await single.fetchval(asked) - before <= 13
