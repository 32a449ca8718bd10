"""How the operator's commands find the services of a running `codehub up`."""

import json
import stat
from pathlib import Path

import pytest

from starter.commands.running_stack import fill, publish, withdraw
from starter.embedded.lock import DataLock
from tests.cli.console import Cli

SERVICES = {
    "DATABASE_URL": "postgresql://u:p@127.0.0.1:1/d",
    "REDIS_URL": "redis://127.0.0.1:2",
    "S3_ENDPOINT": "http://127.0.0.1:3",
    "TEMPORAL_ADDRESS": "127.0.0.1:4",
    "GC_DELAY": "60",
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    publish(tmp_path, SERVICES)
    return tmp_path


def test_only_the_owner_can_read_it(data: Path) -> None:
    assert stat.S_IMODE((data / "run" / "env.json").stat().st_mode) == 0o600


def test_what_is_unset_comes_from_the_running_one(data: Path) -> None:
    with DataLock(data):
        filled = fill({"CODEHUB_DATA": str(data), "GC_DELAY": "7", "REDIS_URL": "", "HOME": "/h"})
    assert filled.environment == {**SERVICES, "CODEHUB_DATA": str(data), "GC_DELAY": "7", "HOME": "/h"}
    assert filled.told == f"Using the services of the codehub up in {data}."


def test_the_same_address_given_here_is_no_contradiction(data: Path) -> None:
    given = {"CODEHUB_DATA": str(data), "DATABASE_URL": SERVICES["DATABASE_URL"]}
    with DataLock(data):
        assert fill(given).environment["S3_ENDPOINT"] == SERVICES["S3_ENDPOINT"]


def test_services_of_two_installations_are_never_mixed(data: Path) -> None:
    """GC on one's database and the other's store would find nothing but orphans."""
    given = {"CODEHUB_DATA": str(data), "DATABASE_URL": "postgresql://elsewhere/d"}
    with DataLock(data):
        filled = fill(given)
    assert filled.environment == given
    assert "DATABASE_URL" in (filled.told or "")


def test_what_a_killed_one_left_behind_is_not_used(data: Path) -> None:
    given = {"CODEHUB_DATA": str(data)}
    assert fill(given).environment == given
    with DataLock(data):
        pass
    assert fill(given).environment == given


def test_one_that_does_not_run_is_said_to_be_down(data: Path) -> None:
    """Where it is all that is named; one that has no data yet, or services of your own, is not missed."""
    given = {"CODEHUB_DATA": str(data)}
    assert fill(given).down is None
    with DataLock(data):
        assert fill(given).down is None
        withdraw(data)
        assert (
            fill(given).down == f"The codehub of {data} is starting or stopping: wait until it says that it is ready."
        )
    assert fill(given).down == f"The codehub of {data} is not running: start it with make up (codehub up)."
    publish(data, SERVICES)
    assert "is not running" in (fill(given).down or "")
    assert fill({**given, "DATABASE_URL": "postgresql://elsewhere/d"}).down is None


@pytest.mark.parametrize("words", [("doctor",), ("verify",), ("gc", "--dry-run"), ("migrate",)])
async def test_commands_say_so_in_one_line(nobody: Cli, data: Path, words: tuple[str, ...]) -> None:
    with DataLock(data):
        pass
    down = await nobody.having(CODEHUB_DATA=str(data))(*words)
    assert (down.code, down.out) == (1, "")
    assert down.err == f"codehub: The codehub of {data} is not running: start it with make up (codehub up).\n"


def test_looking_leaves_the_lock_alone(data: Path) -> None:
    with DataLock(data):
        fill({"CODEHUB_DATA": str(data)})
    fill({"CODEHUB_DATA": str(data)})
    with DataLock(data):
        pass


@pytest.mark.parametrize("text", ["", "[]", "{", json.dumps("x")])
def test_damage_counts_as_nothing(data: Path, text: str) -> None:
    (data / "run" / "env.json").write_text(text)
    given = {"CODEHUB_DATA": str(data)}
    with DataLock(data):
        assert fill(given).environment == given


def test_it_goes_with_the_end(data: Path) -> None:
    withdraw(data)
    withdraw(data)
    with DataLock(data):
        assert fill({"CODEHUB_DATA": str(data)}).told is None
