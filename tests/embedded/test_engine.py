"""Which Docker engine is used where none is named, and what is said where none can be had."""

import asyncio
import os
import signal
import threading
from pathlib import Path

import pytest
import structlog

from starter.embedded import engine
from starter.embedded.errors import EmbeddedError
from starter.embedded.launch import identity
from starter.embedded.progress import NoProgress
from tests.embedded.up import until

APT = """#!/bin/sh
{first}
echo "$DEBIAN_FRONTEND $*" >> "{folder}/asked"
echo $$ > "{folder}/pid"
{body}
"""


class Told(NoProgress):
    def __init__(self) -> None:
        self.steps: list[str] = []

    def step(self, name: str, text: str) -> None:
        self.steps.append(f"{name}: {text}")


class Apt:
    """A program named apt-get, before any other on the path."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.output = folder / "docker-install.log"

    def does(self, body: str, *, first: str = "") -> None:
        """`first`: before anybody knows that it has started."""
        path = self._folder / "apt-get"
        path.write_text(APT.format(folder=self._folder, body=body, first=first))
        path.chmod(0o755)

    async def install(self) -> None:
        await engine.install_engine(NoProgress(), self.output)

    @property
    def asked(self) -> list[str]:
        return (self._folder / "asked").read_text().splitlines()

    async def started(self) -> int:
        """Its process id."""
        path = self._folder / "pid"
        await until(lambda: path.exists() and path.read_text().endswith("\n"))
        return int(path.read_text())


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Apt:
    """Root is at work."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return Apt(tmp_path)


async def test_debians_package_is_installed(apt: Apt) -> None:
    """With fresh lists, nothing recommended, no question; what is done is shown, what it says is kept."""
    apt.does("echo done: $3")
    told = Told()
    await engine.install_engine(told, apt.output)
    assert apt.asked == [
        "noninteractive -o DPkg::Lock::Timeout=300 update",
        "noninteractive -o DPkg::Lock::Timeout=300 install -y --no-install-recommends docker.io iptables",
    ]
    assert told.steps == ["docker: reading the package lists", "docker: installing docker.io"]
    assert apt.output.read_text() == "done: update\ndone: install\n"


async def test_an_installation_that_fails_is_one_line(apt: Apt) -> None:
    """Which step, its code, where its words are, and what to do instead; nothing more is tried."""
    apt.does("echo no network; exit 100")
    with pytest.raises(EmbeddedError) as error:
        await apt.install()
    assert error.value.message == (
        f"apt-get update failed with exit code 100 (see {apt.output}): "
        "install Docker Engine (https://docs.docker.com/engine/install/) and start it, or name one in DOCKER_HOST."
    )
    assert len(apt.asked) == 1


async def test_one_that_takes_too_long_is_ended(apt: Apt, monkeypatch: pytest.MonkeyPatch) -> None:
    apt.does("exec sleep 60")
    # It has to have begun by then.
    monkeypatch.setattr(engine, "APT_SECONDS", 5)
    with pytest.raises(EmbeddedError, match=r"apt-get update took longer than 5 s \(see .*DOCKER_HOST"):
        await apt.install()
    assert identity(await apt.started()) is None


@pytest.mark.parametrize("lacking", ["root", "apt-get", "linux"])
async def test_where_it_cannot_be_installed_the_advice_is_given(
    apt: Apt, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lacking: str
) -> None:
    """Nothing is tried, and the line says what a person can do."""
    apt.does("exit 1")
    match lacking:
        case "root":
            monkeypatch.setattr(os, "geteuid", lambda: 1000)
        case "apt-get":
            monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
        case "linux":
            monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(EmbeddedError) as error:
        await apt.install()
    assert error.value.message == f"No Docker engine answers: {engine.ADVICE}."
    assert not (tmp_path / "asked").exists()


async def test_ctrl_c_waits_for_apt_get_to_end(apt: Apt, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked to end, and has ended when the cancellation is through."""
    monkeypatch.setattr(engine, "END_SECONDS", 60.0)
    apt.does("while true; do sleep 0.05; done", first="trap 'sleep 0.3; echo ended; exit 1' TERM")
    installing = asyncio.create_task(apt.install())
    pid = await apt.started()
    installing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await installing
    assert identity(pid) is None
    assert apt.output.read_text() == "ended\n"


async def test_ctrl_c_does_not_wait_for_ever(apt: Apt, monkeypatch: pytest.MonkeyPatch) -> None:
    """dpkg may be in the middle of a package: it is never killed, and that it goes on is said."""
    apt.does("while true; do sleep 0.05; done", first="trap '' TERM")
    monkeypatch.setattr(engine, "END_SECONDS", 0.3)
    installing = asyncio.create_task(apt.install())
    pid = await apt.started()
    try:
        installing.cancel()
        with structlog.testing.capture_logs() as logs, pytest.raises(asyncio.CancelledError):
            await installing
        assert identity(pid) is not None
        assert [(entry["event"], entry["pid"]) for entry in logs] == [("apt_get_still_at_work", pid)]
    finally:
        os.kill(pid, signal.SIGKILL)
        # Until the loop has heard of its end, its transport is open. The thread that waits for it tells the loop last.
        await until(lambda: identity(pid) is None)
        await until(lambda: not any(thread.name.startswith("asyncio-waitpid") for thread in threading.enumerate()))
        for _ in range(3):
            await asyncio.sleep(0)


async def test_an_engine_that_may_not_be_used_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One that is there but closed to this user is not passed over for another one of our own."""
    closed = tmp_path / "docker.sock"
    closed.touch()
    monkeypatch.setattr(engine, "_usual_sockets", lambda: [tmp_path / "none.sock", closed])
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(EmbeddedError, match=rf"You may not use the Docker engine at {closed}: join its group"):
        await engine.reachable_engine()


async def test_a_named_engine_that_nobody_answers_at_is_a_bad_setting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In one line, with the variable; not before one that is just being started has had its time."""
    monkeypatch.setattr(engine, "NAMED_SECONDS", 0.5)
    told = Told()
    with pytest.raises(EmbeddedError, match=f"^DOCKER_HOST=unix://{tmp_path}/none.sock .*is it running"):
        await engine.named_engine(f"unix://{tmp_path}/none.sock", told)
    assert told.steps == [f"docker: waiting for the engine at unix://{tmp_path}/none.sock"]


async def test_a_named_engine_that_is_slow_to_start_is_waited_for(tmp_path: Path) -> None:
    answer = b'{"ApiVersion":"1.41","ID":"i","ServerVersion":"27.0","NCPU":1,"MemTotal":1}'

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
        writer.write(head % len(answer) + answer)
        await writer.drain()
        writer.close()

    waiting = asyncio.create_task(engine.named_engine(f"unix://{tmp_path}/late.sock", NoProgress()))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    async with await asyncio.start_unix_server(serve, tmp_path / "late.sock"):
        await waiting


async def test_the_engine_that_answers_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not the file that a former one left behind."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nOK")
        await writer.drain()
        writer.close()

    stale, live = tmp_path / "stale.sock", tmp_path / "live.sock"
    stale.touch()
    monkeypatch.setattr(engine, "_usual_sockets", lambda: [stale])
    assert await engine.reachable_engine() is None
    monkeypatch.setattr(engine, "_usual_sockets", lambda: [stale, live])
    async with await asyncio.start_unix_server(serve, live):
        assert await engine.reachable_engine() == f"unix://{live}"
