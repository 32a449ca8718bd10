"""Which failures of PostgreSQL mean that it is away, and that what was cut off by one comes back by itself."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import timedelta

import asyncpg
import pytest
from structlog.testing import capture_logs

from adapters.docker.engine import EngineInfo, Identity
from adapters.postgres.database import Database, DatabaseUnavailable
from adapters.postgres.nodes import Nodes
from coordinator.heart import Heart

ReadOnly = Callable[[], AbstractAsyncContextManager[None]]


@pytest.fixture
def read_only(postgres_url: str, database_url: str) -> ReadOnly:
    """As after a failover while the address still leads to the former server: whoever connects meanwhile is let in, may
    read, and goes on being refused on that connection when all is well again."""
    name = database_url.rpartition("/")[2]

    @asynccontextmanager
    async def between() -> AsyncIterator[None]:
        server = await asyncpg.connect(postgres_url)
        try:
            await server.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
            await server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
            yield
            await server.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
        finally:
            await server.close()

    return between


async def _written(database: Database) -> None:
    await database.execute("UPDATE installation SET id = id")


async def _in_transaction(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.execute("UPDATE installation SET id = id")


@pytest.mark.parametrize("write", [_written, _in_transaction])
async def test_a_server_that_takes_no_writes_is_away(
    database: Database, read_only: ReadOnly, write: Callable[[Database], Awaitable[None]]
) -> None:
    """And is back when it takes them, though nobody cuts the connections of the time between."""
    async with read_only():
        # That the connection was ended may be noticed only now.
        with suppress(DatabaseUnavailable):
            await database.fetchval("SELECT 1")
        for _ in range(2):
            assert await database.fetchval("SELECT count(*) FROM installation") == 1
            with pytest.raises(DatabaseUnavailable, match="read-only"):
                await write(database)
    await write(database)


@pytest.mark.parametrize("code", ["58030", "58000", "58P01", "53100", "57P03", "40P01", "25006"])
async def test_the_servers_own_trouble(database: Database, code: str) -> None:
    """Its disk, its memory, its shutting down: not the caller's fault, and over some day."""
    with pytest.raises(DatabaseUnavailable):
        await database.execute(f"DO $$ BEGIN RAISE EXCEPTION 'trouble' USING ERRCODE = '{code}'; END $$")


@pytest.mark.parametrize("code", ["XX000", "XX001", "22P02", "23505", "42P01"])
async def test_what_waiting_does_not_mend(database: Database, code: str) -> None:
    """A mistake of ours or of the server's, or data that is damaged: it is told as what it is."""
    with pytest.raises(asyncpg.PostgresError):
        await database.execute(f"DO $$ BEGIN RAISE EXCEPTION 'wrong' USING ERRCODE = '{code}'; END $$")


class Engine:
    async def identify(self) -> Identity:
        return Identity(EngineInfo("engine", "", "", 1, 1), "marker", holds_homes=False)

    def registered(self, marker: str) -> None:
        pass

    async def confirm(self) -> None:
        pass


@pytest.fixture
async def beating(database: Database) -> AsyncIterator[tuple[Nodes, asyncio.Task[None]]]:
    nodes = Nodes(database, timedelta(seconds=5))
    heart = Heart(nodes, Engine(), "here", interval=0.05)
    await heart.register()
    task = heart.start()
    yield nodes, task
    task.cancel()
    await asyncio.wait({task})


async def _heard(nodes: Nodes) -> None:
    """Once more."""
    seen = "SELECT seen_at FROM nodes WHERE name = 'here'"
    before = await nodes.database.fetchval(seen)
    async with asyncio.timeout(30):
        while await nodes.database.fetchval(seen) == before:
            await asyncio.sleep(0.05)


async def test_a_heart_outlives_a_server_that_takes_no_writes(
    beating: tuple[Nodes, asyncio.Task[None]], read_only: ReadOnly
) -> None:
    """A failover ends no worker: its node is silent, and heard again."""
    nodes, task = beating
    async with read_only():
        with capture_logs() as said:
            async with asyncio.timeout(30):
                while sum(line["event"] == "node_silent" for line in said) < 3:
                    assert not task.done()
                    await asyncio.sleep(0.05)
    await _heard(nodes)


async def test_a_heart_outlives_what_nobody_foresaw(
    beating: tuple[Nodes, asyncio.Task[None]], database: Database
) -> None:
    """Silence is what tells the others; to end the worker with all that it does would tell them no more."""
    nodes, task = beating
    await database.execute(
        "CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'damaged' USING ERRCODE = 'XX001'; END $$"
    )
    with capture_logs() as said:
        await database.execute("CREATE TRIGGER broken BEFORE UPDATE ON nodes FOR EACH ROW EXECUTE FUNCTION broken()")
        async with asyncio.timeout(30):
            while not any(line["event"] == "heart_failed" for line in said):
                assert not task.done()
                await asyncio.sleep(0.05)
        await database.execute("DROP TRIGGER broken ON nodes")
    await _heard(nodes)
