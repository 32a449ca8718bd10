"""`codehub doctor` on real services, well and broken."""

from typing import Any

import pytest

from adapters.postgres.migrate import migrate
from tests.cli.console import Cli, Result
from tests.conftest import S3

NOWHERE = {
    "DATABASE_URL": "postgresql://u:secret-of-mine@127.0.0.1:1/d",
    "REDIS_URL": "redis://:secret-of-mine@127.0.0.1:1",
    "S3_ENDPOINT": "http://127.0.0.1:1",
    "TEMPORAL_ADDRESS": "127.0.0.1:1",
    "DOCKER_HOST": "unix:///nowhere",
    "CODEHUB_PORT": "1",
}
# What is not set is found so at once; what is away may be waited for.
UNSET = {**NOWHERE, "TEMPORAL_ADDRESS": "", "S3_ENDPOINT": ""}


def findings(result: Result, part: str) -> dict[str, list[Any]]:
    """By status."""
    (found,) = [one for one in result.json["parts"] if one["part"] == part]
    by_status: dict[str, list[Any]] = {"ok": [], "warning": [], "failed": []}
    for finding in found["findings"]:
        by_status[finding["status"]].append(finding)
    return by_status


async def test_everything_is_away(nobody: Cli) -> None:
    """Each is told, with what to do; no password is shown; and all of it takes seconds, not minutes."""
    result = await nobody.having(**NOWHERE)("doctor", "--json")
    assert (result.code, result.json["ok"]) == (1, False)
    for part in ("PostgreSQL", "Redis", "S3", "Temporal", "Docker", "leader", "API"):
        (failed,) = findings(result, part)["failed"]
        assert failed["advice"], part
    assert "secret-of-mine" not in result.out + result.err
    # An installation on services of its own keeps nothing in CODEHUB_DATA.
    assert "every service has its address" in findings(result, "disk")["ok"][0]["message"]
    people = await nobody.having(**NOWHERE)("doctor")
    assert people.code == 1
    assert "✗" in people.out
    assert "→ Start it, or correct DATABASE_URL." in people.out
    assert "Traceback" not in people.out + people.err


async def test_nothing_is_set(nobody: Cli) -> None:
    result = await nobody.having(DOCKER_HOST="unix:///nowhere", GC_DELY="3")("doctor", "--json")
    for part, name in {"PostgreSQL": "DATABASE_URL", "Redis": "REDIS_URL", "S3": "S3_ENDPOINT"}.items():
        assert findings(result, part)["failed"][0]["message"] == f"{name} is not set"
    assert "GC_DELY" in findings(result, "settings")["warning"][0]["message"]


async def test_a_bad_setting_is_one_line(nobody: Cli) -> None:
    result = await nobody.having(CODEHUB_PORT="many")("doctor")
    assert result.code == 1
    assert result.err.startswith("codehub: CODEHUB_PORT='many' is not right")


@pytest.mark.docker
async def test_services_that_are_well(nobody: Cli, service_env: dict[str, str], s3: S3, test_image: str) -> None:
    """What is up is found so, with its version and latency; what no worker has done yet is told as that."""
    operator = nobody.having(**service_env, WORKSPACE_IMAGE=test_image, CODEHUB_PORT="1")
    result = await operator("doctor", "--json")
    for part in ("disk", "PostgreSQL", "Redis", "S3", "Docker"):
        found = findings(result, part)
        assert (found["warning"], found["failed"]) == ([], []), part
    for part in ("PostgreSQL", "Redis", "S3", "Temporal", "Docker"):
        assert findings(result, part)["ok"][0]["latency_ms"] > 0, part
    engines = findings(await operator.having(WORKSPACE_NETWORK="engine")("doctor", "--json"), "Docker")
    assert [*engines["ok"], *engines["failed"]][-1]["message"].endswith("is closed between containers")
    temporal = findings(result, "Temporal")
    assert [one["message"].split(" ")[0] for one in temporal["failed"]] == ["no", "Schedules"]
    assert any("clock agrees" in one["message"] for one in temporal["ok"])
    assert "nobody leads" in findings(result, "leader")["failed"][0]["message"]
    async with s3.client() as client:
        assert (await client.list_objects_v2(Bucket=s3.bucket)).get("Contents", []) == []


async def test_what_is_wrong_with_postgresql(nobody: Cli, empty_database_url: str, database_url: str) -> None:
    """Migrations that are missing, a password that is wrong, a database that is not there."""
    away = nobody.having(**UNSET)
    await migrate(empty_database_url, up_to=2)
    old = findings(await away.having(DATABASE_URL=empty_database_url)("doctor", "--json"), "PostgreSQL")
    assert "migrations are missing" in old["failed"][0]["message"]
    assert "codehub migrate" in old["failed"][0]["advice"]
    user, _, place = database_url.rpartition("@")
    wrong = f"{user.rpartition(':')[0]}:wrong@{place}"
    for url in (wrong, f"{database_url}_missing"):
        refused = findings(await away.having(DATABASE_URL=url)("doctor", "--json"), "PostgreSQL")
        assert "Correct user, password and database" in refused["failed"][0]["advice"]


async def test_what_is_wrong_with_the_store(nobody: Cli, s3: S3) -> None:
    """Wrong keys, and a bucket that is not there."""
    operator = nobody.having(
        **{**UNSET, "S3_ENDPOINT": s3.endpoint, "S3_ACCESS_KEY": s3.access_key, "S3_SECRET_KEY": "wrong"}
    )
    refused = findings(await operator("doctor", "--json"), "S3")["failed"]
    assert "S3_SECRET_KEY" in refused[0]["advice"]
    missing = operator.having(S3_SECRET_KEY=s3.secret_key, S3_BUCKET="not-there-yet")
    (told,) = findings(await missing("doctor", "--json"), "S3")["warning"]
    assert "not-there-yet" in told["message"]
