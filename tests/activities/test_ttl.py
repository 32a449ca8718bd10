"""TTL: idle goes down, active stays, a person wins (SPEC 7, PROMISES 21, 25)."""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from redis.asyncio import Redis

from activities.ttl import TtlRunner
from adapters.postgres.database import Database
from adapters.postgres.desired_state import DesiredStates
from adapters.postgres.ttl import Expiry
from adapters.redis.activity import KEY, ActivityLog
from domain.limits import Limits
from domain.model import DesiredState, Phase, WorkspaceId
from domain.ttl import TtlDefaults
from workflows.messages import ExpireInput

DEFAULTS = TtlDefaults(timedelta(seconds=600), timedelta(seconds=1800), timedelta(seconds=30))
MINUTE = timedelta(minutes=1)


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = Redis.from_url(redis_url)
    yield client
    await client.aclose()


def runner(database: Database, redis: Redis) -> TtlRunner:
    return TtlRunner(Expiry(database, DEFAULTS), ActivityLog(redis))


async def workspace(
    database: Database,
    phase: Phase = Phase.RUNNING,
    *,
    since: timedelta = 60 * MINUTE,
    accessed: timedelta | None = None,
    operation: str = "NONE",
    desired: str | None = None,
    standby_ttl: int | None = None,
    archive_ttl: int | None = None,
) -> WorkspaceId:
    workspace_id = WorkspaceId(str(uuid4()))
    now = datetime.now(UTC)
    busy = operation != "NONE"
    await database.execute(
        "INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state, phase, phase_changed_at,"
        " last_access_at, operation, op_id, op_started_at, standby_ttl_seconds, archive_ttl_seconds, archive_key)"
        " VALUES ($1::uuid, $2, $1::uuid::text, 'i', $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
        workspace_id,
        UUID(int=1),
        desired or phase,
        phase,
        now - since,
        now - accessed if accessed is not None else None,
        operation,
        uuid4() if busy else None,
        now if busy else None,
        standby_ttl,
        archive_ttl,
        "k" if phase is Phase.ARCHIVED else None,
    )
    return workspace_id


async def desired(database: Database, workspace_id: WorkspaceId) -> str:
    return str(await database.fetchval("SELECT desired_state FROM workspaces WHERE id = $1", workspace_id))


async def test_idle_goes_down_and_active_stays(database: Database, redis: Redis) -> None:
    idle = await workspace(database, accessed=30 * MINUTE)
    active = await workspace(database, accessed=5 * MINUTE)
    fresh = await workspace(database, since=5 * MINUTE, accessed=100 * MINUTE)
    standby = await workspace(database, Phase.STANDBY, since=31 * MINUTE)
    young = await workspace(database, Phase.STANDBY, since=29 * MINUTE)
    report = await runner(database, redis).tick()
    assert (report.standby, report.archived) == (1, 1)
    assert await desired(database, idle) == "STANDBY"
    assert await desired(database, active) == "RUNNING"
    assert await desired(database, fresh) == "RUNNING", "woken after a long standby, with an old last_access_at"
    assert await desired(database, standby) == "ARCHIVED"
    assert await desired(database, young) == "STANDBY"


async def test_only_desired_state_changes_and_only_at_rest(database: Database, redis: Redis) -> None:
    stopping = await workspace(database, operation="STOPPING")
    leaving = await workspace(database, desired="STANDBY")
    await runner(database, redis).tick()
    assert await desired(database, stopping) == "RUNNING"
    assert await desired(database, leaving) == "STANDBY"
    assert await database.fetchval("SELECT count(*) FROM workspaces WHERE phase <> 'RUNNING'") == 0


async def test_overrides_and_zero_is_never(database: Database, redis: Redis) -> None:
    never = await workspace(database, standby_ttl=0)
    long = await workspace(database, standby_ttl=2 * 3600)
    short = await workspace(database, since=2 * MINUTE, standby_ttl=60)
    kept = await workspace(database, Phase.STANDBY, since=600 * MINUTE, archive_ttl=0)
    await runner(database, redis).tick()
    assert [await desired(database, one) for one in (never, long, short, kept)] == [
        "RUNNING",
        "RUNNING",
        "STANDBY",
        "STANDBY",
    ]


async def test_activity_in_redis_counts_and_reaches_the_row(database: Database, redis: Redis) -> None:
    used = await workspace(database, accessed=30 * MINUTE)
    seen = datetime.now(UTC) - MINUTE
    await ActivityLog(redis).record({used: seen})
    await runner(database, redis).tick()
    assert await desired(database, used) == "RUNNING"
    stored = await database.fetchval("SELECT last_access_at FROM workspaces")
    assert abs(stored - seen) < timedelta(milliseconds=1)
    assert await redis.zcard(KEY) == 0


async def test_activity_that_arrives_while_it_is_copied_is_not_lost(database: Database, redis: Redis) -> None:
    used = await workspace(database)
    log = ActivityLog(redis)
    first, second = datetime.now(UTC) - 2 * MINUTE, datetime.now(UTC) - MINUTE
    await log.record({used: first})
    copied = await log.read()
    await log.record({used: second})
    await log.remove(copied)
    left = await log.read()
    assert abs(left[used] - second) < timedelta(milliseconds=1)
    await log.remove(left)
    assert await log.read() == {}


async def test_an_older_report_does_not_take_back_a_newer_one(database: Database, redis: Redis) -> None:
    used = await workspace(database, accessed=MINUTE)
    await ActivityLog(redis).record({used: datetime.now(UTC) - 30 * MINUTE})
    await runner(database, redis).tick()
    stored = await database.fetchval("SELECT last_access_at FROM workspaces")
    assert datetime.now(UTC) - stored < 2 * MINUTE


async def test_foreign_members_in_redis_do_not_stop_the_tick(database: Database, redis: Redis) -> None:
    idle = await workspace(database)
    await redis.zadd(KEY, {"not-an-id": 1, str(uuid4()): 2})
    await runner(database, redis).tick()
    assert await desired(database, idle) == "STANDBY"


async def test_redis_unknown_puts_nobody_to_sleep(database: Database) -> None:
    """PROMISE 25: without Redis, activity is unknown; archiving needs only the database and goes on."""
    running, standby = await workspace(database), await workspace(database, Phase.STANDBY)
    nowhere = Redis.from_url("redis://127.0.0.1:1")
    report = await runner(database, nowhere).tick()
    await nowhere.aclose()
    assert report.standby_skipped
    assert await desired(database, running) == "RUNNING"
    assert await desired(database, standby) == "ARCHIVED"


async def test_one_that_stays_in_use_is_looked_at_once_in_a_ttl(database: Database, redis: Redis) -> None:
    """What was noted of it is what the next tick goes by: it is not written again until a TTL has gone by, and sleeps
    when it has not been used for one."""
    used = await workspace(database, accessed=5 * MINUTE)
    noted = "SELECT in_use_at, xmin::text AS version FROM workspaces"
    await runner(database, redis).tick()
    first = await database.fetchrow(noted)
    assert first
    assert first["in_use_at"] == await database.fetchval("SELECT last_access_at FROM workspaces")
    await runner(database, redis).tick()
    assert await database.fetchrow(noted) == first, "written though nothing is new"
    await ActivityLog(redis).record({used: datetime.now(UTC) - MINUTE})
    await runner(database, redis).tick()
    assert await database.fetchval("SELECT in_use_at FROM workspaces") == first["in_use_at"]

    past = "UPDATE workspaces SET last_access_at = now() - $1::interval, in_use_at = now() - $2::interval"
    await database.execute(past, 5 * MINUTE, 15 * MINUTE)
    await runner(database, redis).tick()
    assert await desired(database, used) == "RUNNING"
    await database.execute(past, 12 * MINUTE, 15 * MINUTE)
    await runner(database, redis).tick()
    assert await desired(database, used) == "STANDBY"


async def test_whoever_takes_the_last_access_back_is_heard(database: Database, redis: Redis) -> None:
    """By hand: codehub itself never does."""
    used = await workspace(database, accessed=MINUTE)
    await runner(database, redis).tick()
    assert await database.fetchval("SELECT in_use_at IS NOT NULL FROM workspaces")
    await database.execute("UPDATE workspaces SET last_access_at = now() - interval '1 day'")
    await runner(database, redis).tick()
    assert await desired(database, used) == "STANDBY"


@pytest.mark.parametrize("races", [60, pytest.param(1000, marks=pytest.mark.full)])
@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.STANDBY])
async def test_a_person_who_wants_it_running_at_the_moment_of_expiry_wins(
    database: Database, redis: Redis, phase: Phase, races: int
) -> None:
    """PROMISE 21: whoever commits first, the person's RUNNING is what stays: of one that is about to be put to sleep,
    and of one that sleeps and is about to be archived. Both orders are seen."""
    states = DesiredStates(database, Limits(10_000, 10_000))
    one, ttl, moments = await workspace(database, phase), runner(database, redis), random.Random(21)
    head_start = 0.0
    """Of the tick. It is moved to where either may be first, however fast this machine is."""
    person_first = 0

    async def person() -> None:
        await asyncio.sleep(max(0.0, head_start) + moments.uniform(0, 0.002))
        await states.set(one, DesiredState.RUNNING)

    async def tick() -> int:
        await asyncio.sleep(max(0.0, -head_start) + moments.uniform(0, 0.002))
        report = await ttl.tick()
        return report.standby + report.archived

    for _ in range(races):
        await database.execute(
            "UPDATE workspaces SET desired_state = phase, last_access_at = now() - interval '1 hour'"
        )
        _, expired = await asyncio.gather(person(), tick())
        assert await desired(database, one) == "RUNNING"
        person_first += not expired
        head_start += -0.002 if expired else 0.002
    assert races / 10 < person_first < races * 9 / 10


@dataclass(frozen=True, slots=True)
class Slow(Expiry):
    """PostgreSQL takes its time over what was copied; meanwhile somebody's report reaches Redis."""

    redis: Redis
    reported: WorkspaceId

    async def touch(self, seen: Mapping[WorkspaceId, datetime]) -> None:
        await Expiry.touch(self, seen)
        await ActivityLog(self.redis).record({self.reported: datetime.now(UTC)})
        await self.database.execute("SELECT pg_sleep(3)")


async def test_who_was_active_is_asked_before_the_moment_that_is_gone_by(database: Database, redis: Redis) -> None:
    """Its TTL ends while the tick waits for PostgreSQL, and it has been used since Redis was read."""
    limit = DEFAULTS.standby + DEFAULTS.lag
    back = await workspace(database, accessed=limit - timedelta(seconds=2))
    idle = await workspace(database, accessed=limit + timedelta(seconds=2))
    await ActivityLog(redis).record({await workspace(database): datetime.now(UTC)})
    report = await TtlRunner(Slow(database, DEFAULTS, redis, back), ActivityLog(redis)).tick()
    assert report.standby == 1
    assert [await desired(database, one) for one in (back, idle)] == ["RUNNING", "STANDBY"]


async def test_reports_have_had_their_time_when_redis_is_read(database: Database, redis: Redis) -> None:
    """Not when PostgreSQL has taken what was read: what was on its way may have come in between."""
    back = await workspace(database)
    await ActivityLog(redis).record({await workspace(database): datetime.now(UTC)})
    unknown = datetime.now(UTC) - DEFAULTS.lag + timedelta(seconds=2)
    report = await TtlRunner(Slow(database, DEFAULTS, redis, back), ActivityLog(redis)).tick(ExpireInput(unknown))
    assert report.standby_skipped
    assert await desired(database, back) == "RUNNING"


ODD = [1.7e12, float("inf"), float("-inf"), -1e15]
"""Milliseconds, and what is no time at all."""


@pytest.mark.parametrize("score", ODD)
async def test_a_score_that_is_no_time(database: Database, redis: Redis, score: float) -> None:
    """It stops nobody's expiry. Reports can't go below it, so whose it is counts as used, and it is gone then."""
    odd, idle = await workspace(database), await workspace(database)
    await redis.zadd(KEY, {odd: score})
    log = ActivityLog(redis)
    assert await log.last_seen(odd) is None
    await log.record({odd: datetime.now(UTC)})
    await runner(database, redis).tick()
    assert [await desired(database, one) for one in (odd, idle)] == ["RUNNING", "STANDBY"]
    assert await redis.zcard(KEY) == 0


NAMES = [b"\xff\xfe", b"not-an-id", "１".encode() * 32, b"", str(uuid4()).upper().encode()]


async def test_names_that_are_none(database: Database, redis: Redis) -> None:
    """Whatever somebody left there: it is removed, and nobody's expiry waits for it."""
    idle = await workspace(database)
    await redis.zadd(KEY, dict.fromkeys(NAMES, 1.7e9))
    await runner(database, redis).tick()
    assert await desired(database, idle) == "STANDBY"
    assert await redis.zcard(KEY) == 0
