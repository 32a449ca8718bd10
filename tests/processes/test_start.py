"""Starting when something is wrong or missing: one clear line, or patience that says what it waits for (issue 2)."""

import asyncio
import time
from datetime import datetime, timedelta

import pytest

from settings import SettingsError, load_settings, without_effect
from starter.patience import Patience
from tests.ports import free_port
from tests.processes.conftest import Launch
from tests.processes.process import CodehubProcess

pytestmark = pytest.mark.timeout(900)

NOWHERE = "127.0.0.1:9"
"""Where nobody listens."""
STOP_SECONDS = 60.0


def environment(**env: str) -> dict[str, str]:
    return {
        "DATABASE_URL": f"postgresql://codehub:secret-word@{NOWHERE}/codehub",
        "REDIS_URL": f"redis://:secret-word@{NOWHERE}",
        "S3_ENDPOINT": f"http://{NOWHERE}",
        "TEMPORAL_ADDRESS": NOWHERE,
        "DOCKER_HOST": "unix:///nowhere",
        "CODEHUB_PORT": str(free_port()),
        **env,
    }


BAD = [
    ("DATABASE_URL", "mysql://user:secret-word@db/x", "(hidden)"),
    ("TEMPORAL_ADDRESS", "temporal", "'temporal'"),
    ("TEMPORAL_ADDRESS", "http://temporal:7233", "(hidden)"),
    ("DOCKER_HOST", "/var/run/docker.sock", "'/var/run/docker.sock'"),
    ("DATABASE_POOL_SIZE", "many", "'many'"),
    ("CODEHUB_PORT", "99999", "'99999'"),
    ("CODEHUB_ADMIN_PASSWORD", "short", "(hidden)"),
    ("LOG_LEVEL", "LOUD", "'LOUD'"),
    ("RECONCILER_STARTING_TIMEOUT", "inf", "'inf'"),
    ("RECONCILER_RETRY_BACKOFF", "nan", "'nan'"),
    ("WORKER_DRAIN_SECONDS", "inf", "'inf'"),
    ("TTL_STANDBY_SECONDS", "999999999999999", "'999999999999999'"),
    ("AUDIT_KEPT_DAYS", "9999999", "'9999999'"),
    ("LIMITS_MAX_RUNNING_GLOBAL", "9999999999", "'9999999999'"),
    ("WORKSPACE_CPUS", "inf", "'inf'"),
    ("TEMPORAL_ADDRESS", "127.0.0.1:99999", "'127.0.0.1:99999'"),
    ("TEMPORAL_ADDRESS", "127.0.0.1:0", "'127.0.0.1:0'"),
    ("S3_ENDPOINT", "http://127.0.0.1:99999", "(hidden)"),
    ("S3_BUCKET", "UPPER_case", "'UPPER_case'"),
    ("S3_BUCKET", "ab", "'ab'"),
    ("WORKSPACE_BLOCKED_NETWORKS", "10.0.0.0/8,here", "'10.0.0.0/8,here'"),
    ("WORKSPACE_BLOCKED_NETWORKS", "10.0.0.5/8", "'10.0.0.5/8'"),
    ("COORDINATOR_LOCK_ID", "9223372036854775808", "'9223372036854775808'"),
]


@pytest.mark.parametrize(("name", "value", "shown"), BAD)
def test_a_bad_setting_names_what_would_be_right(name: str, value: str, shown: str) -> None:
    """The variable, the value (no secret) and what would be right."""
    with pytest.raises(SettingsError) as caught:
        load_settings(environment(**{name: value}))
    assert str(caught.value).startswith(f"{name}={shown} is not right: ")
    assert "; wanted: " in str(caught.value)
    assert "secret-word" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "right"),
    [
        ("CODEHUB_PORT", "many", "a whole number from 1 up to 65535"),
        ("METRICS_PORT", "70000", "a whole number from 1 up to 65535"),
        ("NODE_LOST_SECONDS", "400", "a number from 3 up to 300"),
        ("WORKSPACE_CPUS", "0", "a number above 0 up to 4096"),
        ("TEMPORAL_TLS", "maybe", "true or false"),
        ("LOG_LEVEL", "LOUD", "'DEBUG', 'INFO', 'WARNING' or 'ERROR'"),
    ],
)
def test_what_would_be_right_is_said_as_people_do(name: str, value: str, right: str) -> None:
    with pytest.raises(SettingsError, match=f"; wanted: {right}$"):
        load_settings(environment(**{name: value}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("COORDINATOR_LOCK_ID", str(2**63 - 1)),
        ("TTL_STANDBY_SECONDS", str(10 * 365 * 86400)),
        ("RECONCILER_STARTING_TIMEOUT", "0.5"),
        ("S3_BUCKET", "my.archives-1"),
        ("TEMPORAL_ADDRESS", "[::1]:7233"),
        ("METRICS_PORT", "9090"),
    ],
)
def test_the_limits_are_not_too_narrow(name: str, value: str) -> None:
    settings = load_settings(environment(**{name: value}))
    assert str(getattr(settings, name.lower())) in {value, f"{value}.0"}
    assert settings.timeouts
    assert settings.ttl.standby


@pytest.mark.parametrize(("command", "name"), [("worker", "DATABASE_POOL_SIZE"), ("api", "DATABASE_URL")])
async def test_a_bad_setting_is_one_line(launch: Launch, command: str, name: str) -> None:
    """Exit code 1, no traceback."""
    value = "many" if name == "DATABASE_POOL_SIZE" else ""
    process = launch(command, environment(**{name: value}))
    assert await process.ended() == 1
    (line,) = process.output.splitlines()
    assert line.startswith(f"codehub: {name}")


def test_what_has_no_effect_is_told() -> None:
    """What the design's documents name and codehub has no use for, and what is misspelt; nothing of anybody else."""
    told = without_effect(
        {
            **environment(TTL_INTERVAL="60", COORDINATOR_NODE_ID="", GC_DLEAY="1"),
            "REDIS_CHANNEL_WAKE_PREFIX": "codehub:wake:",
            "IDLE_TIMER_SECONDS": "300",
            "IDLE_OTHER": "",
            "REDIS_PASSWORD": "secret-word",
            "TTL": "1",
            "CODEHUB_PROT": "1",
            "CODEHUB_FURTHER": "1",
            "CODEHUB_TOKEN": "the command line's",
        }
    )
    assert list(told) == [
        "CODEHUB_FURTHER",
        "CODEHUB_PROT",
        "GC_DLEAY",
        "IDLE_TIMER_SECONDS",
        "REDIS_CHANNEL_WAKE_PREFIX",
    ]
    assert told["CODEHUB_FURTHER"] == "codehub has no such setting"
    assert told["CODEHUB_PROT"] == "codehub has no such setting: is CODEHUB_PORT meant?"
    assert told["GC_DLEAY"] == "codehub has no such setting: is GC_DELAY meant?"
    assert "TTL_STANDBY_SECONDS" in told["IDLE_TIMER_SECONDS"]


@pytest.mark.parametrize("command", ["worker", "api"])
async def test_postgresql_is_waited_for(launch: Launch, command: str) -> None:
    """A line that names service and address, without the password; told to stop, it stops at once and well. What is
    set and has no effect is a line of its own, and stops nobody."""
    process = launch(command, environment(REDIS_CHANNEL_WAKE_PREFIX="codehub:wake:"))
    useless = await process.said("setting_without_effect", setting="REDIS_CHANNEL_WAKE_PREFIX")
    assert (useless["level"], "Temporal" in useless["reason"]) == ("warning", True)
    line = await process.said("waiting_for", service="PostgreSQL")
    assert line["address"] == f"{NOWHERE}/codehub"
    assert line["level"] == "warning"
    await _stops(process)
    assert "secret-word" not in process.output
    assert "Traceback" not in process.output


async def test_a_worker_waits_for_temporal(launch: Launch, database_url: str) -> None:
    """And the API does not: what it writes down is carried out later."""
    worker = launch("worker", environment(DATABASE_URL=database_url))
    api = launch("api", environment(DATABASE_URL=database_url))
    line = await worker.said("waiting_for", service="Temporal")
    assert line["address"] == f"{NOWHERE} (namespace default)"
    await api.said("api_listening")
    await _stops(worker)
    await _stops(api)


async def test_the_line_comes_again_but_not_all_the_time(launch: Launch) -> None:
    """Every few seconds: enough to be seen, and not so much that it hides everything else."""
    process = launch("worker", environment())
    await process.said("waiting_for")
    began = time.monotonic()
    while len(_waiting(process)) < 2:
        assert time.monotonic() - began < 120
        await asyncio.sleep(0.1)
    first, second = (datetime.fromisoformat(line["timestamp"]) for line in _waiting(process)[:2])
    assert second - first > timedelta(seconds=3)
    await _stops(process)


@pytest.mark.parametrize(("command", "wrong"), [("worker", "password"), ("api", "database")])
async def test_a_database_that_refuses_is_one_line(launch: Launch, database_url: str, command: str, wrong: str) -> None:
    """Waiting would not help: it says so and ends with 1."""
    process = launch(command, environment(DATABASE_URL=_but(database_url, wrong)))
    assert await process.ended() == 1
    (line,) = process.output.splitlines()
    assert line.startswith("codehub: DATABASE_URL: PostgreSQL at ")
    assert "secret-word" not in line


async def test_an_address_that_is_none_is_not_waited_for(database_url: str) -> None:
    with pytest.raises(SettingsError, match=r"^DATABASE_URL: PostgreSQL at 127\.0\.0\.1:seven/"):
        await Patience().migrated(_but(database_url, "port"))


def _but(database_url: str, wrong: str) -> str:
    server, _, name = database_url.rpartition("/")
    user, _, where = server.removeprefix("postgresql://").partition("@")
    return {
        "password": f"postgresql://{user.partition(':')[0]}:secret-word@{where}/{name}",
        "database": f"{server}/no_such_database",
        "port": f"postgresql://{user}@127.0.0.1:seven/{name}",
    }[wrong]


async def _stops(process: CodehubProcess) -> None:
    process.terminate()
    assert await process.ended(STOP_SECONDS) == 0


def _waiting(process: CodehubProcess) -> list[dict[str, str]]:
    return [line for line in process.events if line["event"] == "waiting_for"]
