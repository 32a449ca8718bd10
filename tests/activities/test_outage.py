"""Redis away for longer than a TTL: whoever is in use stays RUNNING (PROMISE 25)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from redis.asyncio import Redis
from structlog.testing import capture_logs

from adapters.postgres.database import Database, open_database
from adapters.redis.activity import KEY
from adapters.redis.activity_kinds import ActivityKind
from domain.model import WorkspaceId
from starter.proxy.activity import Activity, ActivityReport
from tests.activities.test_ttl import MINUTE, desired, runner, workspace
from tests.faults.proxy import FaultProxy, server_of, through
from workflows.messages import ExpireInput

NEVER = 3600.0


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with _connected(redis_url) as client:
        yield client


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[Redis]:
    client = Redis.from_url(url)
    try:
        yield client
    finally:
        await client.aclose()


@asynccontextmanager
async def _between(url: str) -> AsyncIterator[tuple[FaultProxy, Redis]]:
    """What can be cut, and who is cut off by it."""
    async with FaultProxy(server_of(url)) as proxy, _connected(through(url, proxy)) as client:
        yield proxy, client


@asynccontextmanager
async def _reporting(report: ActivityReport) -> AsyncIterator[None]:
    task = asyncio.create_task(report.run())
    await asyncio.sleep(0)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _last_access(database: Database, workspace_id: WorkspaceId) -> timedelta:
    """How long ago."""
    at: datetime = await database.fetchval("SELECT last_access_at FROM workspaces WHERE id = $1", workspace_id)
    return datetime.now(UTC) - at


async def test_used_while_redis_was_away_it_stays_up_though_the_tick_comes_before_the_next_report(
    database: Database, redis_url: str
) -> None:
    used, idle = await workspace(database, accessed=60 * MINUTE), await workspace(database, accessed=60 * MINUTE)
    async with _between(redis_url) as (between, redis):
        await between.refuse()
        activity = Activity()
        activity.saw(used, ActivityKind.HTTP)
        await ActivityReport(activity, redis, database, NEVER).send()
        assert (await runner(database, redis).tick()).standby_skipped
        await between.heal()
        assert (await runner(database, redis).tick()).standby == 1
        assert [await desired(database, one) for one in (used, idle)] == ["RUNNING", "STANDBY"]


async def test_an_api_that_alone_is_cut_off_from_redis(database: Database, redis_url: str, redis: Redis) -> None:
    """The runner, which reaches Redis, learns from the rows."""
    used = await workspace(database, accessed=60 * MINUTE)
    async with _between(redis_url) as (between, proxys):
        await between.refuse()
        activity = Activity()
        activity.saw(used, ActivityKind.TO_WORKSPACE)
        await ActivityReport(activity, proxys, database, NEVER).send()
        assert not activity.seen
        report = await runner(database, redis).tick()
        assert not report.standby_skipped
        assert await desired(database, used) == "RUNNING"


async def test_the_last_report_of_an_api_that_ends_while_redis_is_away(database: Database, redis_url: str) -> None:
    used = await workspace(database, accessed=60 * MINUTE)
    async with _between(redis_url) as (between, proxys):
        between.black_hole()
        activity = Activity()
        async with _reporting(ActivityReport(activity, proxys, database, NEVER)):
            activity.saw(used, ActivityKind.HTTP)
    assert await _last_access(database, used) < MINUTE


async def test_with_redis_and_postgresql_away_it_is_kept_and_told_soon(redis_url: str, redis: Redis) -> None:
    """Not with the report after that, an hour later."""
    used = WorkspaceId(str(uuid4()))
    nowhere = await open_database("postgresql://nobody@127.0.0.1:1/none")
    async with _between(redis_url) as (between, proxys):
        await between.refuse()
        activity = Activity()
        activity.saw(used, ActivityKind.HTTP)
        report = ActivityReport(activity, proxys, nowhere, 0.01)
        async with _reporting(report), asyncio.timeout(30):
            with capture_logs() as said:
                while not any(line["event"] == "activity_kept" for line in said):
                    await asyncio.sleep(0.01)
            report.interval = NEVER
            assert used in activity.seen
            await between.heal()
            while await redis.zscore(KEY, used) is None:
                await asyncio.sleep(0.01)


async def test_after_an_unknown_tick_nobody_sleeps_until_reports_have_had_their_time(
    database: Database, redis: Redis
) -> None:
    """Somebody's report may have reached neither: it is still on its way."""
    idle = await workspace(database, accessed=60 * MINUTE)
    lag = runner(database, redis).expiry.defaults.lag
    unknown = datetime.now(UTC) - lag / 2
    report = await runner(database, redis).tick(ExpireInput(unknown))
    assert report.standby_skipped
    assert report.unknown_at == unknown
    assert await desired(database, idle) == "RUNNING"
    report = await runner(database, redis).tick(ExpireInput(unknown - lag))
    assert not report.standby_skipped
    assert report.unknown_at is None
    assert await desired(database, idle) == "STANDBY"


async def test_what_a_tick_did_not_know_is_told_to_the_next(database: Database) -> None:
    async with _connected("redis://127.0.0.1:1") as away:
        before = datetime.now(UTC)
        report = await runner(database, away).tick()
        assert report.unknown_at is not None
        assert before <= report.unknown_at <= datetime.now(UTC)
