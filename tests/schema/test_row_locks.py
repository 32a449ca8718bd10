"""Whoever changes many rows waits for none while holding others, or goes by their ids: no two wait for each other."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import UUID

import pytest

from adapters.postgres.database import Database
from adapters.postgres.nodes import Nodes
from adapters.postgres.ttl import Expiry
from domain.ttl import TtlDefaults

AT_ONCE = 5.0
"""Seconds. PostgreSQL itself would find out after one that two wait for each other."""
FIRST, LAST = UUID(int=1), UUID(int=2)
OWNER = UUID(int=1)
"""Whom the fixture has made."""

_ROWS = """
INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state, phase, phase_changed_at, node, move_to)
SELECT id, $2, id::text, 'i', $3, $3, now() - interval '1 day', 'a', $4 FROM unnest($1::uuid[]) AS new (id)
"""


@asynccontextmanager
async def _held(database: Database, workspace: UUID) -> AsyncIterator[None]:
    """Somebody is changing this row."""
    async with database.transaction() as connection:
        await connection.execute("SELECT FROM workspaces WHERE id = $1 FOR UPDATE", workspace)
        yield


async def _expire_running(database: Database) -> object:
    expiry = Expiry(database, TtlDefaults(timedelta(minutes=1), timedelta(minutes=1), timedelta(0)))
    return await expiry.expire_running(await expiry.now())


async def _expire_standby(database: Database) -> object:
    return await Expiry(database, TtlDefaults(timedelta(minutes=1), timedelta(minutes=1))).expire_standby()


async def _send_off(database: Database) -> object:
    return await Nodes(database).send_off("a", 0)


@pytest.mark.parametrize(
    ("phase", "change", "left"),
    [
        ("RUNNING", _expire_running, "desired_state = 'RUNNING'"),
        ("STANDBY", _expire_standby, "desired_state = 'STANDBY'"),
        ("STANDBY", _send_off, "move_to IS NOT NULL"),
    ],
)
async def test_what_somebody_is_changing_is_passed_over(
    database: Database, phase: str, change: Callable[[Database], Awaitable[object]], left: str
) -> None:
    """And taken the next time, with no word of it."""
    for name in ("a", "b"):
        await database.execute("INSERT INTO nodes (name, engine_id, cordoned_at) VALUES ($1, $1, now())", name)
    await Nodes(database).drain("a")
    await database.execute(_ROWS, [FIRST, LAST], OWNER, phase, "b")
    untouched = f"SELECT array_agg(id) FROM workspaces WHERE {left}"
    async with _held(database, FIRST), asyncio.timeout(AT_ONCE):
        await change(database)
    assert await database.fetchval(untouched) == [FIRST]
    await change(database)
    assert await database.fetchval(untouched) is None


async def test_a_node_that_is_taken_back_goes_by_the_ids(database: Database) -> None:
    """It has to wait; whoever else goes by the ids waits behind it, and not for it."""
    await database.execute("INSERT INTO nodes (name, engine_id, cordoned_at) VALUES ('a', 'a', now())")
    for workspace in (LAST, FIRST):
        await database.execute(_ROWS, [workspace], OWNER, "STANDBY", "b")
    async with asyncio.timeout(AT_ONCE):
        async with _held(database, FIRST):
            waiting = asyncio.create_task(Nodes(database).uncordon("a"))
            while not await database.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                await asyncio.sleep(0.01)
            free = "SELECT id FROM workspaces WHERE id = $1 FOR UPDATE NOWAIT"
            assert await database.fetchval(free, LAST), "it holds the last one, and waits for the first"
        assert await waiting
