"""The units are what systemd takes, and start what codehub has."""

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from domain.naming import is_node_name
from settings import Settings, load_settings
from tests.docs.test_docs import ROOT, problem_of

FOLDER = ROOT / "deploy" / "systemd"
EXAMPLE = FOLDER / "codehub.env.example"
UNITS = sorted(FOLDER.glob("*.service"))
INSTANCE = "b"


def unit(path: Path) -> configparser.RawConfigParser:
    """Repeated keys are systemd's own; the last one is as good as any for what is asked here."""
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(path)
    return parser


def command(path: Path) -> list[str]:
    return [word.replace("%i", INSTANCE) for word in shlex.split(unit(path)["Service"]["ExecStart"])]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_takes_it(path: Path, tmp_path: Path) -> None:
    """With the program where this checkout has it. What it does not know it only warns of."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze")
    here = path.read_text().replace("/opt/codehub/.venv", str(ROOT / ".venv"))
    assert _verified(tmp_path / path.name.replace("@", f"@{INSTANCE}"), here) == ""
    assert "Restrat" in _verified(tmp_path / "wrong.service", here.replace("Restart=", "Restrat="))


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_what_it_starts_exists(path: Path) -> None:
    program, *arguments = command(path)
    assert program == "/opt/codehub/.venv/bin/codehub", "where docs/operations.md has it installed"
    assert problem_of(arguments) is None


def test_the_instance_is_the_node() -> None:
    assert command(FOLDER / "codehub-worker@.service")[-2:] == ["--node", INSTANCE]
    assert is_node_name(INSTANCE)


def test_worker_and_api_of_one_host_do_not_want_the_same_port() -> None:
    """Both read host.env, where METRICS_PORT is the worker's; the API has /metrics at its own address."""
    worker, api = (unit(FOLDER / name)["Service"] for name in ("codehub-worker@.service", "codehub-api.service"))
    # The last one of each is that of the host.
    assert worker["EnvironmentFile"] == api["EnvironmentFile"] == "-/etc/codehub/host.env"
    assert api["UnsetEnvironment"].split() == ["METRICS_PORT"]
    assert "UnsetEnvironment" not in worker


def test_nobody_is_killed_while_it_drains() -> None:
    service = unit(FOLDER / "codehub-worker@.service")["Service"]
    assert int(service["TimeoutStopSec"]) >= Settings().worker_drain_seconds + 5


def test_the_example_names_settings_and_codehub_takes_them() -> None:
    """No secret is in it; what differs between hosts is named as such, and not in it."""
    given = dict(re.findall(r"^([A-Z0-9_]+)=(.*)$", EXAMPLE.read_text(), re.MULTILINE))
    known = {name.upper() for name in Settings.model_fields}
    assert given.keys() <= known
    assert {"DATABASE_URL", "REDIS_URL", "S3_ENDPOINT", "S3_ACCESS_KEY", "S3_SECRET_KEY", "TEMPORAL_ADDRESS"} <= set(
        given
    )
    assert all(re.fullmatch(r"\d*", value) for value in given.values())
    load_settings(given)
    (host,) = re.findall(r"host\.env: ([^.]+)\.", EXAMPLE.read_text())
    named = set(re.findall(r"[A-Z0-9_]{5,}", host))
    assert len(named) > 5
    assert named <= known
    assert not named & given.keys()


def _verified(path: Path, text: str) -> str:
    path.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", path],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    # Of other units on this machine it may have something to say, too.
    return "\n".join(line for line in done.stderr.splitlines() if str(path.parent) in line or path.name in line)
