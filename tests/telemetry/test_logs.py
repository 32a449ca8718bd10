"""What a process says, in the shape that LOG_FORMAT asks for."""

import json
import os
import pty
import subprocess
import sys

import pytest

# A line of ours, one of a library, and a failure that holds a secret in a local variable.
SPEAKS = """
import logging, os, structlog
from settings import load_settings
from starter.logs import configure_logs

configure_logs(load_settings(os.environ))
log = structlog.get_logger()
log.info("reconciled", workspace="w-1")
log.debug("too quiet")
logging.getLogger("somebody.else").warning("from a library")
def fail():
    password = "the-secret"
    raise ValueError("broken")
try:
    fail()
except ValueError:
    log.exception("failed")
"""


def said(log_format: str, *, terminal: bool = False) -> str:
    """On standard error, which may be a terminal."""
    command = [sys.executable, "-c", SPEAKS]
    environment = {"PATH": os.environ["PATH"], "LOG_FORMAT": log_format}
    if not terminal:
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stderr
    master, slave = pty.openpty()
    process = subprocess.Popen(command, env={**environment, "TERM": "xterm"}, stderr=slave)
    os.close(slave)
    read = b""
    try:
        while piece := os.read(master, 65536):
            read += piece
    except OSError:
        # The other end is closed.
        pass
    os.close(master)
    assert process.wait() == 0
    return read.decode()


def lines(text: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("log_format", ["json", "auto"])
def test_for_machines(log_format: str) -> None:
    """One object per line, of libraries as well, with level and time; `auto` where nobody looks."""
    told = lines(said(log_format))
    assert [(line["event"], line["level"]) for line in told] == [
        ("reconciled", "info"),
        ("from a library", "warning"),
        ("failed", "error"),
    ]
    assert told[0]["workspace"] == "w-1"
    assert all(line["timestamp"].endswith("Z") for line in told)
    assert "ValueError: broken" in told[2]["exception"]
    assert "the-secret" not in str(told)


@pytest.mark.parametrize(("log_format", "terminal"), [("console", False), ("auto", True)])
def test_for_people(log_format: str, *, terminal: bool) -> None:
    """Aligned and without braces; `auto` at a terminal. Tracebacks show no variables."""
    text = said(log_format, terminal=terminal)
    for word in ("reconciled", "w-1", "from a library", "failed", "ValueError: broken"):
        assert word in text
    assert not any(line.startswith("{") for line in text.splitlines())
    assert "too quiet" not in text
    assert "the-secret" not in text.replace('password = "the-secret"', "")


def test_json_also_at_a_terminal() -> None:
    assert [line["event"] for line in lines(said("json", terminal=True))] == ["reconciled", "from a library", "failed"]
