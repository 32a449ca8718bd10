"""A worker's word for its node, by the worker as it is put together: heard whatever else it does."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import datetime

import pytest

from adapters.docker.runtime import DockerRuntime
from adapters.postgres.database import Database, open_database
from settings import load_settings
from worker import Parts, open_parts

pytestmark = pytest.mark.docker

BEATS = 3
"""That have to come while everything is taken."""

Opened = Callable[..., AbstractAsyncContextManager[Parts]]


@pytest.fixture
async def database(database_url: str, installation: str) -> AsyncIterator[Database]:
    opened = await open_database(database_url)
    # Of the run, so that its end removes the node's marker.
    await opened.execute("UPDATE installation SET id = $1", f"{installation}-heart")
    yield opened
    await opened.close()


@pytest.fixture
def opened(service_env: dict[str, str], database: Database) -> Opened:
    """A worker's parts, registered as a node."""

    @asynccontextmanager
    async def start(node: str, **env: str) -> AsyncIterator[Parts]:
        async with open_parts(load_settings({**service_env, **env}), node) as parts:
            async with asyncio.timeout(60):
                while not await database.fetchval("SELECT true FROM nodes WHERE name = $1", node):
                    await asyncio.sleep(0.05)
            yield parts

    return start


async def test_a_node_with_its_hands_full_is_heard(opened: Opened, database: Database) -> None:
    """Every thread for the engine and every connection to PostgreSQL is taken by operations, for longer than a node may
    be silent: it beats, and sweeps, all the same."""
    async with opened("full", NODE_LOST_SECONDS="3", DATABASE_POOL_SIZE="4") as parts, AsyncExitStack() as stack:
        assert isinstance(parts.runtime, DockerRuntime)
        done, threads = threading.Event(), 2 * parts.runtime.config.pool_size
        calls = [asyncio.create_task(parts.runtime._engine.compute(done.wait)) for _ in range(threads)]
        stack.push_async_callback(asyncio.wait, calls)
        stack.callback(done.set)
        for _ in range(4):
            await stack.enter_async_context(parts.database.pool.acquire())
        assert parts.heart
        beating = parts.heart.start()
        stack.callback(beating.cancel)
        heard: set[datetime] = set()
        began = time.monotonic()
        while len(heard) <= BEATS or time.monotonic() - began < 3:
            heard.add(await database.fetchval("SELECT seen_at FROM nodes WHERE name = 'full'"))
            assert time.monotonic() - began < 30, f"heard {len(heard)} times"
            await asyncio.sleep(0.1)
        async with asyncio.timeout(30):
            assert await parts.runtime.observe_all() == {}


@pytest.mark.parametrize(("given", "kept"), [("7", 7), ("0", None)])
async def test_its_capacity_is_the_setting(opened: Opened, database: Database, given: str, kept: int | None) -> None:
    """NODE_CAPACITY of the worker is the limit that placement goes by; 0 is none."""
    async with opened("limited", NODE_CAPACITY=given, NODE_ADDRESS="127.0.0.3"):
        row = await database.fetchrow("SELECT capacity, address FROM nodes WHERE name = 'limited'")
        assert row
        assert tuple(row) == (kept, "127.0.0.3")
