"""SPEC 8: traffic is remembered, reported every interval, and not lost when Redis is away."""

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta

import pytest
from redis.asyncio import Redis

from adapters.postgres.database import open_database
from adapters.redis.activity import ActivityLog
from adapters.redis.activity_kinds import ActivityKind, KindLog
from domain.model import WorkspaceId
from starter.proxy.activity import Activity, ActivityReport
from tests.conftest import OwnServices
from tests.proxy.world import Person, Workspace, World, serving, until

ONE, TWO = WorkspaceId("one"), WorkspaceId("two")
NOWHERE = "postgresql://nobody@127.0.0.1:1/none"


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a Redis that is slow, and not away."""
    monkeypatch.setattr("starter.proxy.activity._REDIS_SECONDS", 30.0)
    monkeypatch.setattr("starter.proxy.activity._LAST_REPORT_SECONDS", 30.0)


@pytest.mark.usefixtures("patient")
async def test_requests_are_activity(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """When they pass. A probe that says so is none, nor is a page of ours or a refusal."""
    workspace_id = WorkspaceId(at.split("/")[2])
    asleep = await world.row(alice, phase="ARCHIVED", desired_state="ARCHIVED")
    await world.open(f"/w/{asleep}/", alice)
    await world.get(at)
    await world.get(at, alice, X_Codehub_No_Activity="1")
    assert world.proxy.activity.seen == {}
    assert ws.header("x-codehub-no-activity") == []
    before = datetime.now(UTC)
    await world.get(at, alice)
    await ActivityReport(world.proxy.activity, world.redis, world.deps.database, 1).send()
    seen = await ActivityLog(world.redis).last_seen(workspace_id)
    assert seen is not None
    assert before - timedelta(milliseconds=1) <= seen <= datetime.now(UTC)
    told = (await KindLog(world.redis).last_of([workspace_id, ONE]))[workspace_id]
    assert (told.at, told.kind) == (seen, ActivityKind.HTTP)
    explained = json.loads((await world.get(f"/api/v1/workspaces/{workspace_id}/explain", alice)).body)
    assert datetime.fromisoformat(explained["last_activity"]["at"]) == seen
    assert explained["last_activity"]["kind"] == "http"


async def test_a_long_transfer_is_activity(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """One request, but data comes for as long as it takes. An event stream's heartbeats are none."""
    go_on = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.read(65536)
        kind = b"text/event-stream" if b"/events" in head else b"text/plain"
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\n\r\none" % kind)
        await go_on.wait()
        writer.write(b"two")
        await reader.read(1)

    ws.handler = handler
    for path, counts in ((at, True), (f"{at}events", False)):
        async with world.connect() as (reader, writer):
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {world.host}\r\nCookie: {alice.cookie}\r\n\r\n".encode())
            await asyncio.wait_for(reader.readuntil(b"one"), 20)
            world.proxy.activity.seen.clear()
            go_on.set()
            await asyncio.wait_for(reader.readuntil(b"two"), 20)
            assert bool(world.proxy.activity.seen) is counts
        go_on.clear()


@pytest.mark.usefixtures("patient")
async def test_it_is_reported_every_interval(database_url: str, redis_url: str, ws: Workspace) -> None:
    """And once more when the server stops."""
    redis: Redis = Redis.from_url(redis_url)
    log = ActivityLog(redis)
    async with serving(database_url, redis_url, flush_interval=0.2) as world:
        alice = await world.person("alice")
        first = await world.row(alice, ws.endpoint)
        await world.get(f"/w/{first}/", alice)

        async def reported() -> bool:
            return await log.last_seen(WorkspaceId(first)) is not None

        await until(reported)
    async with serving(database_url, redis_url, flush_interval=3600) as world:
        bob = await world.person("bob")
        last = await world.row(bob, ws.endpoint)
        await world.get(f"/w/{last}/", bob)
        assert await log.last_seen(WorkspaceId(last)) is None
    assert await log.last_seen(WorkspaceId(last)) is not None
    await redis.aclose()


async def test_redis_away(own_services: OwnServices) -> None:
    """And PostgreSQL, too: what could not be reported is kept and reported when Redis is back; the latest time wins."""
    stack = await own_services("valkey")
    redis: Redis = Redis.from_url(stack.env["REDIS_URL"], socket_connect_timeout=1, socket_timeout=1)
    log = ActivityLog(redis)
    activity = Activity()
    report = ActivityReport(activity, redis, await open_database(NOWHERE), 3600)
    activity.saw(ONE, ActivityKind.HTTP)
    activity.saw(TWO, ActivityKind.HTTP)
    await stack.supervisor.pause("valkey")
    await report.send()
    first = time.time()
    # What is kept are microseconds, rounded: the next one is later in these as well.
    while time.time() <= first + 0.001:
        await asyncio.sleep(0.001)
    activity.saw(ONE, ActivityKind.TO_WORKSPACE)
    await report.send()
    await stack.supervisor.resume("valkey")
    await until(lambda: _sent(activity, report), 20)
    seen = await log.read()
    assert set(seen) == {ONE, TWO}
    assert seen[ONE].timestamp() > first >= seen[TWO].timestamp()
    assert (await KindLog(redis).last_of([ONE]))[ONE].kind is ActivityKind.TO_WORKSPACE
    await redis.aclose()


@pytest.mark.usefixtures("patient")
async def test_a_flush_that_is_cancelled(redis_url: str) -> None:
    """Loses nothing: what was on its way is still there."""
    redis: Redis = Redis.from_url(redis_url)
    activity = Activity()
    report = ActivityReport(activity, redis, await open_database(NOWHERE), 3600)
    activity.saw(ONE, ActivityKind.HTTP)
    flushing = asyncio.create_task(report.send())
    await asyncio.sleep(0)
    flushing.cancel()
    await asyncio.gather(flushing, return_exceptions=True)
    await report.send()
    assert set(await ActivityLog(redis).read()) == {ONE}
    await redis.aclose()


async def _sent(activity: Activity, report: ActivityReport) -> bool:
    await report.send()
    return not activity.seen
