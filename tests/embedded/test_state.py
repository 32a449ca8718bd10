"""What the embedded stack keeps between starts, and what people see while it starts."""

import io
import os
import secrets
import socket
import sys
from pathlib import Path

import pytest
from rich.console import Console

from starter.embedded.errors import EmbeddedError
from starter.embedded.lock import DataLock
from starter.embedded.progress import ConsoleProgress, Progress
from starter.embedded.state import HIGHEST_PORT, LOWEST_PORT, State, write_atomically


def test_ports_and_secrets_are_kept(data: Path) -> None:
    """The next start finds the same ports and secrets; nobody else can read them."""
    first = State(data)
    port, secret = first.port("one"), first.secret("one")
    second = State(data)
    assert second.port("one") == port
    assert second.secret("one") == secret
    assert second.port("two") != port
    assert second.secret("two") != secret
    assert first.path.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in data.iterdir()] == ["state.json"]


def test_ports_are_none_that_clients_use(data: Path) -> None:
    """No outgoing connection takes the port of a service that is down for a moment."""
    port = State(data).port("one", also=10_000)
    assert port + 10_000 <= HIGHEST_PORT + 10_000 < 32768


def test_taken_port_is_replaced_and_the_new_one_kept(data: Path) -> None:
    """A port that another program has meanwhile is given up for good."""
    kept = State(data).port("one")
    with socket.create_server(("127.0.0.1", kept)):
        other = State(data).port("one")
    assert other != kept
    assert State(data).port("one") == other


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a port can't be held for somebody else")
def test_two_that_start_at_the_same_moment_choose_two_ports(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the service of the first listens, which it can."""
    first = State(data)
    port = first.port("one")
    chosen, any_other = iter([port - LOWEST_PORT]), secrets.randbelow
    monkeypatch.setattr(secrets, "randbelow", lambda below: next(chosen, any_other(below)))
    (data / "other").mkdir()
    assert State(data / "other").port("one") != port
    assert next(chosen, None) is None
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_damaged_state_is_named(data: Path) -> None:
    """Half a file is never taken for an empty one: the passwords of the data would be lost."""
    (data / "state.json").write_text('{"ports": {"one"')
    with pytest.raises(EmbeddedError, match=r"state\.json is damaged"):
        State(data)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux only")
def test_full_disk_is_one_line_and_leaves_the_old_file(data: Path) -> None:
    """When the new text can't be written, the old one stays and the message says why."""
    path = data / "kept"
    path.write_text("old")
    os.symlink("/dev/full", data / "kept.tmp")
    with pytest.raises(EmbeddedError, match=r"kept \(No space left on device\)") as error:
        write_atomically(path, "new")
    assert "\n" not in error.value.message
    assert path.read_text() == "old"


def test_lock_is_let_go_with_its_holder(data: Path) -> None:
    """A second holder is refused while the first has it, and not after."""
    with DataLock(data), pytest.raises(EmbeddedError, match=f"process id {os.getpid()}"):
        DataLock(data).acquire()
    with DataLock(data):
        pass


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_reads_well(terminal: bool) -> None:
    """On a terminal and in a log file: each service, what it does, and that it is ready."""
    output = io.StringIO()
    progress: Progress = ConsoleProgress(Console(file=output, force_terminal=terminal, width=100))
    progress.step("postgres", "creating [the] cluster")
    progress.step("postgres", "creating [the] cluster")
    progress.done("postgres", 1.23)
    progress.close()
    text = output.getvalue()
    assert "postgres" in text
    assert "ready" in text
    if not terminal:
        lines = [line.partition(" ")[2] for line in text.splitlines()]
        assert lines == ["postgres: creating [the] cluster", "postgres: ready in 1.2 s"]


def test_progress_fits_the_terminal() -> None:
    """A long text is cut; the others keep their names and times."""
    output = io.StringIO()
    progress = ConsoleProgress(Console(file=output, force_terminal=True, width=60, color_system=None))
    progress.step("ide editor", "installing " + "many packages and " * 10)
    progress.step("worker", "starting")
    progress.close()
    lines = output.getvalue().splitlines()
    assert any("ide editor" in line and "…" in line and line.endswith("0:00:00") for line in lines)
    assert any("worker" in line and line.rstrip().endswith("0:00:00") for line in lines)
