"""What is counted, and what it costs."""

import asyncio
import time
from typing import Any

import aiohttp
import pytest

from adapters.postgres.database import open_database
from adapters.tasks import end
from adapters.telemetry.fleet import FleetMetrics
from adapters.telemetry.metrics import DRIFT, RECONCILING, timed
from adapters.telemetry.tracing import span, sql_span
from coordinator.leader import Leader
from settings import Settings, SettingsError
from starter.metrics import Exposition, serving_metrics
from tests.ports import free_port


async def test_the_fleet_is_shown_by_the_leader_only_and_read_when_asked_for(database_url: str) -> None:
    """One query per look, none between looks, and nothing stale once another one leads."""
    database = await open_database(database_url)
    leading = True
    fleet = FleetMetrics(database, lambda: leading, max_age=60)
    try:
        await database.execute("INSERT INTO users (username, password_hash) VALUES ('alice', '')")
        await database.execute(
            "INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state)"
            " SELECT gen_random_uuid(), u.id, n::text, 'image', 'RUNNING' FROM users u, generate_series(1, 3) n"
        )
        text = (await fleet.render()).decode()
        assert 'codehub_workspaces{phase="PENDING"} 3.0' in text
        assert 'codehub_workspaces{phase="RUNNING"} 0.0' in text
        assert "codehub_longest_wait_seconds" in text
        await database.execute("UPDATE workspaces SET phase = 'RUNNING'")
        assert (await fleet.render()).decode() == text, "kept for a while"
        leading = False
        assert await fleet.render() == b""
        leading = True
        assert 'codehub_workspaces{phase="RUNNING"} 3.0' in (await fleet.render()).decode()
    finally:
        await database.close()


async def test_a_source_that_fails_does_not_hide_the_others() -> None:
    async def away() -> bytes:
        raise ConnectionError("nobody there")

    async def there() -> bytes:
        return b"other_metric 1\n"

    text = await Exposition({"away": away, "there": there}).render()
    assert b"other_metric 1" in text
    assert b"codehub_build_info" in text


async def test_a_port_that_is_taken_is_a_wrong_setting() -> None:
    """One line that names the variable, not a worker that nobody can look at."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = Settings(metrics_port=taken.getsockname()[1])
        with pytest.raises(SettingsError, match="METRICS_PORT"):
            async with serving_metrics(settings, {}):
                pass


def test_metrics_cost_nothing_that_can_be_felt() -> None:
    """A hot path may count and, where tracing is off, name spans: microseconds each."""
    rounds = 2000
    began = time.process_time()
    for _ in range(rounds):
        with timed(RECONCILING), span("x"), sql_span("SELECT 1"):
            DRIFT.labels("sweep").inc()
    each = (time.process_time() - began) / rounds
    assert each < 200e-6, f"{each * 1e6:.1f} µs"


async def test_each_worker_says_whether_it_leads(database_url: str) -> None:
    """Of two that stand for election one says yes; when it ends, the other does."""
    leaders = [Leader(database_url, name, {}, retry_interval=0.2) for name in ("one", "two")]
    ports = [free_port(), free_port()]
    tasks = [asyncio.create_task(leader.run()) for leader in leaders]

    async def leading() -> list[bool]:
        told = [await _json(f"http://127.0.0.1:{port}/health/coordinator") for port in ports]
        assert [one["node_id"] for one in told] == ["one", "two"]
        assert all(one["is_leader"] or one["uptime_seconds"] == 0 for one in told)
        return [one["is_leader"] for one in told]

    async def until(*expected: list[bool]) -> list[bool]:
        async with asyncio.timeout(30):
            while (found := await leading()) not in expected:
                await asyncio.sleep(0.05)
        return found

    try:
        async with (
            serving_metrics(Settings(metrics_port=ports[0]), {}, {"coordinator": leaders[0].told}),
            serving_metrics(Settings(metrics_port=ports[1]), {}, {"coordinator": leaders[1].told}),
        ):
            first = (await until([True, False], [False, True])).index(True)
            await end([tasks[first]])
            await until([False, True] if first == 0 else [True, False])
    finally:
        await end(tasks)


async def _json(url: str) -> dict[str, Any]:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        body: dict[str, Any] = await answer.json()
        return body
