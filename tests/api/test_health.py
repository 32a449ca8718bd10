import asyncio
import time

import pytest

from adapters.s3.client import S3Config
from starter.api.dependencies import ApiConfig
from starter.s3 import store_check
from tests.api.world import Api, serving
from tests.conftest import S3
from tests.ports import free_port


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

    # Long enough for a PostgreSQL on a busy machine, which has to answer within it, too.
    config = ApiConfig(default_image="ide", check_deadline=3)
    async with serving(database_url, config, {"redis": refuses, "temporal": hangs}) as api:
        # The first call connects.
        await api.deps.database.fetchval("SELECT 1")
        started = time.monotonic()
        answer = await api("GET", "/health/ready")
        assert time.monotonic() - started < 20
        assert (answer.status, answer.code) == (503, "not_ready")
        assert answer.message == "redis does not answer; temporal did not answer within 3 s"
        assert {name: part["ready"] for name, part in answer.json["parts"].items()} == {
            "postgresql": True,
            "redis": False,
            "temporal": False,
        }
        assert "Retry-After" in answer.headers
        assert "10.1.2.3" not in answer.body.decode()


async def test_coordinator(api: Api) -> None:
    """Who leads, since when, and whether the lock is really held."""
    nobody = (await api("GET", "/health/coordinator")).json
    assert nobody == {"is_leader": False, "node_id": None, "uptime_seconds": 0, "leader": None}
    async with api.deps.database.transaction() as connection:
        await connection.execute("INSERT INTO system_locks (lock_name, holder_id) VALUES ('coordinator', 'worker-1')")
    gone = (await api("GET", "/health/coordinator")).json
    assert (gone["is_leader"], gone["node_id"], gone["leader"]["alive"]) == (False, None, False)
    async with api.deps.database.transaction() as connection:
        await connection.execute("SELECT pg_advisory_xact_lock($1)", api.deps.config.coordinator_lock_id)
        told = (await api("GET", "/health/coordinator")).json
    leader = told.pop("leader")
    assert told.pop("uptime_seconds") > 0
    assert told == {"is_leader": True, "node_id": "worker-1"}
    assert (leader["holder_id"], leader["alive"]) == ("worker-1", True)
    assert leader["since"].endswith("Z")


@pytest.mark.parametrize("wrong", [None, "address", "key", "bucket"])
async def test_the_store_is_watched(database_url: str, s3: S3, wrong: str | None) -> None:
    """An outage of the object store is told to admins, and makes no API process unready: it works without."""
    endpoint = f"http://127.0.0.1:{free_port()}" if wrong == "address" else s3.endpoint
    bucket = "no-such-bucket" if wrong == "bucket" else s3.bucket
    config = S3Config(endpoint, s3.access_key, bucket, "wrong" if wrong == "key" else s3.secret_key)
    async with store_check(config) as check, serving(database_url, watched={"s3": check}) as api:
        admin = await api.person("admin", is_admin=True)
        part = (await admin("GET", "/api/v1/admin/health")).json["parts"]["s3"]
        assert part["ready"] is (wrong is None)
        assert bool(part["message"]) is (wrong is not None)
        assert (await api("GET", "/health/ready")).json["parts"].keys() == {"postgresql"}


async def test_engines_are_told_as_last_heard_of(api: Api) -> None:
    await api.deps.database.execute(
        "INSERT INTO nodes (name, engine_id, cpus, memory, seen_at) VALUES ('a', 'a', 2, 1, now()),"
        " ('b', 'b', 2, 1, now() - interval '1 hour')"
    )
    admin = await api.person("admin", is_admin=True)
    engines = (await admin("GET", "/api/v1/admin/health")).json["engines"]
    assert [(one["node"], one["answers"]) for one in engines] == [("a", True), ("b", False)]
