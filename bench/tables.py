"""What runs over all rows: the TTL tick, a page of the list, GC. At 100 to 100,000 rows, in a database of their own."""

import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID, uuid4

import asyncpg
from redis.asyncio import Redis

from activities.bucket import OWNER_KEY
from activities.gc import RUN_KEY, GarbageCollector
from activities.ttl import TtlRunner
from adapters.archive_store import StoredObject
from adapters.postgres.catalog import Catalog
from adapters.postgres.database import Database, connect, open_database
from adapters.postgres.desired_state import DesiredStates
from adapters.postgres.garbage import Garbage
from adapters.postgres.migrate import migrate
from adapters.postgres.ttl import Expiry
from adapters.redis.activity import ActivityLog
from adapters.s3.store import S3ArchiveStore, open_store
from bench.growth import Growth
from bench.installation import Simulation
from bench.row import Row
from domain.limits import Limits
from domain.model import OperationId, UserId, WorkspaceId
from domain.naming import archive_key, meta_key
from domain.ttl import TtlDefaults
from settings import load_settings
from starter.s3 import s3_config
from workflows.client import TemporalAddress, Waker
from workflows.client import connect as connect_temporal
from workflows.messages import GcInput

SIZES = (100, 1_000, 10_000, 100_000)
EXPIRING = 100
_ROUNDS = 7
_DAY = timedelta(days=1)

# A third each RUNNING, STANDBY and ARCHIVED; all were archived once, and touched just now.
_FILL = """
INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state, phase, node, last_access_at, archive_key)
SELECT id, $1, 'w' || n, 'none', state, state, CASE WHEN state <> 'ARCHIVED' THEN 'local' END, now(),
       id || '/' || gen_random_uuid() || '/home.tar.zst'
FROM generate_series($2::int, $3::int - 1) AS n,
     LATERAL (SELECT gen_random_uuid(), (ARRAY['RUNNING', 'STANDBY', 'ARCHIVED'])[1 + n % 3]) AS s (id, state)
"""
_EXPIRE = """
UPDATE workspaces SET last_access_at = now() - interval '9 days', phase_changed_at = now() - interval '9 days'
WHERE id IN (SELECT id FROM workspaces WHERE phase = 'RUNNING' AND desired_state = 'RUNNING' LIMIT $1)
RETURNING id
"""
_UNDO = "UPDATE workspaces SET desired_state = phase, last_access_at = now() WHERE desired_state <> phase"


async def run(simulation: Simulation, growth: Growth) -> list[Row]:
    rows: list[Row] = []
    async with _database(simulation.env["DATABASE_URL"]) as database:
        owner = await database.fetchval("INSERT INTO users (username, password_hash) VALUES ('a', '') RETURNING id")
        filled = 0
        for size in SIZES:
            await _fill(simulation.env["DATABASE_URL"], owner, filled, size)
            filled, last = size, size == SIZES[-1]
            ticks = await _ticks(simulation, database)
            pages = await _pages(database, UserId(str(owner)))
            collected = await _collected(simulation, database)
            growth.add(f"TTL tick with {EXPIRING} expiring, ms", size, statistics.median(ticks))
            growth.add("page of 50 of the list, ms", size, statistics.median(pages))
            growth.add("GC over two objects a workspace, s", size, collected)
            if last:
                note = f"with {EXPIRING} expiring"
                rows = [
                    Row(f"TTL tick over {size:,} rows", ticks, goal=200, unit="ms", note=note),
                    Row(f"page of 50 of {size:,} rows, with total", pages, unit="ms"),
                    Row(f"GC over {2 * size:,} objects", [collected], note="the store's listing simulated"),
                ]
    return rows


async def _fill(server: str, owner: UUID, first: int, end: int) -> None:
    """Without the triggers: nobody listens, and it is not what is measured."""
    connection: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(_url(server))
    try:
        await connection.execute("ALTER TABLE workspaces DISABLE TRIGGER USER")
        await connection.execute(_FILL, owner, first, end)
        await connection.execute("ALTER TABLE workspaces ENABLE TRIGGER USER")
        await connection.execute("VACUUM ANALYZE workspaces")
    finally:
        await connection.close()


async def _ticks(simulation: Simulation, database: Database) -> list[float]:
    redis: Redis = Redis.from_url(simulation.env["REDIS_URL"])
    client = await connect_temporal(TemporalAddress(simulation.env["TEMPORAL_ADDRESS"]))
    # On a queue that nobody serves: what the woken workflows would do isn't the tick's.
    waker = Waker(client, "bench-nobody")
    defaults = TtlDefaults(standby=_DAY, archive=timedelta(0))
    runner = TtlRunner(Expiry(database, defaults), ActivityLog(redis))
    taken: list[float] = []
    try:
        for _ in range(_ROUNDS):
            expiring = await database.fetch(_EXPIRE, EXPIRING)
            # Whoever is RUNNING has a workflow already.
            await waker.wake_all(WorkspaceId(str(row["id"])) for row in expiring)
            began = time.monotonic()
            report = await runner.tick()
            taken.append((time.monotonic() - began) * 1000)
            await database.execute(_UNDO)
            if report.standby > EXPIRING or not report.standby:
                raise RuntimeError(f"{report.standby} expired instead of {EXPIRING}")
    finally:
        await redis.aclose()
    return taken


async def _pages(database: Database, owner: UserId) -> list[float]:
    catalog = Catalog(database, DesiredStates(database, Limits(1, 1)))
    return [await _timed(lambda: catalog.page(owner, limit=50, offset=0)) * 1000 for _ in range(_ROUNDS)]


async def _collected(simulation: Simulation, database: Database) -> float:
    """The archive that each workspace has, and of every hundredth one that nobody needs any more."""
    rows = await database.fetch("SELECT id, archive_key FROM workspaces")
    orphans = [archive_key(WorkspaceId(str(row["id"])), OperationId(str(uuid4()))) for row in rows[::100]]
    keys = [*(row["archive_key"] for row in rows), *orphans]
    listed = [name for key in sorted(keys) for name in (key, meta_key(key))]
    settings = load_settings(simulation.env)
    async with open_store(s3_config(settings)) as store:
        await store.delete([OWNER_KEY])
        listing = _Listing(store.client, store.bucket, keys=listed)
        collector = GarbageCollector(Garbage(database), listing, "bench", delay=_DAY)
        began = time.monotonic()
        report = await collector.collect(GcInput())
        taken = time.monotonic() - began
        await store.delete([OWNER_KEY, RUN_KEY])
        if (report.listed, report.orphans) != (len(listed), 2 * len(orphans)):
            raise RuntimeError(f"{report} of {len(listed)} objects, {2 * len(orphans)} of them orphans")
        return taken


@dataclass(frozen=True, slots=True)
class _Listing(S3ArchiveStore):
    """The store, as if it held two objects a workspace."""

    keys: list[str] = field(default_factory=list)

    async def list_objects(self) -> AsyncIterator[StoredObject]:
        now = datetime.now(UTC)
        for key in self.keys:
            yield StoredObject(key, 1, now)


@asynccontextmanager
async def _database(server: str) -> AsyncIterator[Database]:
    url = _url(server)
    admin = await connect(server)
    try:
        await admin.execute("CREATE DATABASE bench_tables")
        await migrate(url)
        database = await open_database(url, max_size=4)
        try:
            yield database
        finally:
            await database.close()
            await admin.execute("DROP DATABASE bench_tables")
    finally:
        await admin.close()


def _url(server: str) -> str:
    return urlunsplit(urlsplit(server)._replace(path="/bench_tables"))


async def _timed(work: Callable[[], Awaitable[object]]) -> float:
    began = time.monotonic()
    await work()
    return time.monotonic() - began
