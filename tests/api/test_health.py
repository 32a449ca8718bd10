import asyncio
import time

from starter.api.dependencies import ApiConfig
from tests.api.world import Api, serving


async def test_live(api: Api) -> None:
    """Alive is alive, whatever else is not."""
    await api.deps.database.close()
    assert (await api("GET", "/health/live")).json == {"live": True}


async def test_ready(api: Api) -> None:
    """Ready when every part answers."""
    answer = await api("GET", "/health/ready")
    assert (answer.status, answer.json) == (
        200,
        {"ready": True, "parts": {"postgresql": {"ready": True, "message": None}}},
    )


async def test_not_ready_says_what(database_url: str) -> None:
    """503 names each part that does not answer, and waits for none longer than its deadline; no addresses."""

    async def refuses() -> None:
        raise ConnectionError("connect to 10.1.2.3:6379 refused")

    async def hangs() -> None:
        await asyncio.Event().wait()

    config = ApiConfig(default_image="ide", node_id="here", check_deadline=0.3)
    async with serving(database_url, config, {"redis": refuses, "temporal": hangs}) as api:
        started = time.monotonic()
        answer = await api("GET", "/health/ready")
        assert time.monotonic() - started < 2
        assert (answer.status, answer.code) == (503, "not_ready")
        assert answer.message == "redis does not answer; temporal did not answer within 0.3 s"
        assert {name: part["ready"] for name, part in answer.json["parts"].items()} == {
            "postgresql": True,
            "redis": False,
            "temporal": False,
        }
        assert "Retry-After" in answer.headers
        assert "10.1.2.3" not in answer.body.decode()


async def test_coordinator(api: Api) -> None:
    """Who leads, since when, and whether the lock is really held; this process never leads."""
    nobody = (await api("GET", "/health/coordinator")).json
    assert (nobody["is_leader"], nobody["node_id"], nobody["leader"]) == (False, "here", None)
    assert nobody["uptime_seconds"] > 0
    async with api.deps.database.transaction() as connection:
        await connection.execute("INSERT INTO system_locks (lock_name, holder_id) VALUES ('coordinator', 'worker-1')")
    assert (await api("GET", "/health/coordinator")).json["leader"]["alive"] is False
    async with api.deps.database.transaction() as connection:
        await connection.execute("SELECT pg_advisory_xact_lock($1)", api.deps.config.coordinator_lock_id)
        leader = (await api("GET", "/health/coordinator")).json["leader"]
    assert (leader["holder_id"], leader["alive"]) == ("worker-1", True)
    assert leader["since"].endswith("Z")
