"""GC and TTL, whose activities concern all workspaces: run twice, and made to fail at every call (PROMISES 5 and 6)."""

import asyncio
import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import pytest
from redis.asyncio import Redis

from activities.gc import RUN_KEY, GarbageCollector
from activities.ttl import TtlRunner
from adapters.postgres.database import Database
from adapters.postgres.garbage import Garbage
from adapters.postgres.ttl import Expiry
from adapters.redis.activity import ActivityLog
from adapters.s3.store import S3ArchiveStore
from domain.model import Phase, WorkspaceId
from domain.naming import archive_key
from tests.activities import test_gc as gc
from tests.activities import test_ttl as ttl
from tests.harness.cases import ERRORS, Case, Cases, Fault, working_for
from workflows.messages import GcInput

RUNNER = WorkspaceId("the runner")
SAMPLE = 18
"""Of the cases, in an ordinary run: all of TTL's, some of GC's."""


class World(Protocol):
    async def fill(self, cases: Cases) -> Callable[[], Awaitable[object]]:
        """Make it as it is before the first run; returns the activity."""
        ...

    async def snapshot(self) -> Any: ...

    async def clear(self) -> None: ...


@dataclass
class GcWorld:
    database: Database
    archives: S3ArchiveStore
    kept: set[str] = field(default_factory=set)

    async def fill(self, cases: Cases) -> Callable[[], Awaitable[object]]:
        archived = await gc.workspace(self.database)
        wanted = await gc.put(self.archives, archived, 1)
        await gc.put(self.archives, archived, 2)
        await gc.put(self.archives, await gc.workspace(self.database, Phase.DELETED), 1)
        await self.archives.write("theirs", b"not codehub's")
        broken_off = archive_key(archived, gc.op(3))
        await self.archives.client.create_multipart_upload(Bucket=self.archives.bucket, Key=broken_off)
        self.kept = {wanted, f"{wanted}.meta", "theirs"}
        garbage, archives = cases.wrap("garbage", Garbage(self.database)), cases.wrap("archives", self.archives)
        collector = GarbageCollector(garbage, archives, "ours", timedelta(0), batch=3)
        return lambda: collector.collect(GcInput())

    async def snapshot(self) -> Any:
        left = await gc.keys(self.archives)
        uploads = [upload.key async for upload in self.archives.list_uploads()]
        orphans = await self.database.fetchval("SELECT count(*) FROM gc_orphans")
        state = await self.database.fetchrow("SELECT run > 0 AS ran, hold_until, finished_at IS NOT NULL FROM gc_state")
        stored = await self.archives.read(RUN_KEY)
        run = await self.database.fetchval("SELECT run FROM gc_state")
        assert state
        return left == self.kept, uploads, orphans, tuple(state), stored == str(run).encode()

    async def clear(self) -> None:
        await self.archives.delete([found.key async for found in self.archives.list_objects()])
        for upload in [upload async for upload in self.archives.list_uploads()]:
            await self.archives.abort(upload)
        await self.database.execute("TRUNCATE workspaces, gc_orphans CASCADE")
        await self.database.execute("UPDATE gc_state SET run = 0, finished_at = NULL, hold_until = NULL")


@dataclass
class TtlWorld:
    database: Database
    redis: Redis
    made: dict[str, WorkspaceId] = field(default_factory=dict)

    async def fill(self, cases: Cases) -> Callable[[], Awaitable[object]]:
        self.made = {
            "idle": await ttl.workspace(self.database, accessed=30 * ttl.MINUTE),
            "used": await ttl.workspace(self.database, accessed=30 * ttl.MINUTE),
            "unused": await ttl.workspace(self.database, Phase.STANDBY, since=60 * ttl.MINUTE),
        }
        log = ActivityLog(self.redis)
        await log.record({self.made["used"]: datetime.now(UTC) - ttl.MINUTE})
        expiry = cases.wrap("expiry", Expiry(self.database, ttl.DEFAULTS))
        runner = TtlRunner(expiry, cases.wrap("activity", log))
        return runner.tick

    async def snapshot(self) -> Any:
        rows = await self.database.fetch(
            "SELECT id, desired_state, last_access_at > now() - interval '10 minutes' AS recent FROM workspaces"
        )
        names = {workspace: name for name, workspace in self.made.items()}
        return {
            (names[WorkspaceId(str(row["id"]))], row["desired_state"], row["recent"]) for row in rows
        }, await ActivityLog(self.redis).read()

    async def clear(self) -> None:
        await self.database.execute("TRUNCATE workspaces CASCADE")
        await self.redis.flushall()


@pytest.fixture(params=["gc", "ttl"])
async def world(
    request: pytest.FixtureRequest, database: Database, archives: S3ArchiveStore, redis_url: str
) -> AsyncIterator[World]:
    redis = Redis.from_url(redis_url)
    yield GcWorld(database, archives) if request.param == "gc" else TtlWorld(database, redis)
    await redis.aclose()


async def test_run_again_it_changes_nothing(world: World) -> None:
    """PROMISE 5."""
    run = await world.fill(Cases())
    await run()
    once = await world.snapshot()
    for _ in range(2):
        await run()
        assert await world.snapshot() == once


@pytest.mark.timeout(900)
async def test_the_next_run_makes_up_for_one_that_failed(world: World) -> None:
    """PROMISE 6: before its effect, after it, later than it was said to have failed; SAMPLE of the cases at most."""
    await _all_cases(world, SAMPLE)


@pytest.mark.full
@pytest.mark.timeout(3600)
async def test_the_next_run_makes_up_for_one_that_failed_anywhere(world: World) -> None:
    """PROMISE 6: at every call."""
    await _all_cases(world, None)


async def _all_cases(world: World, sample: int | None) -> None:
    expected, points, cases = await _free_of_faults(world)
    combinations = [
        (point, fault)
        for point in points
        for fault in (Fault.BEFORE, Fault.AFTER, Fault.LATE)
        if fault is not Fault.LATE or cases.can_be_late(point)
    ]
    seed = secrets.randbits(32)
    chosen = random.Random(seed).sample(combinations, min(sample or len(combinations), len(combinations)))
    for point, fault in chosen:
        case = Case(point, fault, counting=True)
        run = await world.fill(Cases({RUNNER: case}, late_by=0.05))
        with working_for(RUNNER):
            try:
                await run()
            except tuple(ERRORS.values()):
                assert case.struck
        assert case.struck, point
        if fault is Fault.LATE:
            await asyncio.wait_for(case.done.wait(), 30)
        await run()
        assert await world.snapshot() == expected, f"{point} {fault}, seed {seed}"
        await world.clear()


async def _free_of_faults(world: World) -> tuple[Any, list[str], Cases]:
    case = Case(counting=True)
    cases = Cases({RUNNER: case})
    run = await world.fill(cases)
    with working_for(RUNNER):
        await run()
    await run()
    expected = await world.snapshot()
    assert case.points
    await world.clear()
    return expected, case.points, cases
