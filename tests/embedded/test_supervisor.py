"""The supervisor on small real processes."""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import structlog

from starter.embedded.child import Child
from starter.embedded.errors import EmbeddedError
from starter.embedded.launch import identity
from starter.embedded.record import wait_for
from starter.embedded.supervisor import STOP_SECONDS, Supervisor, stop_shares
from tests.embedded.up import until
from tests.ports import free_port

# Answers on a port with what it was told to keep; notes in a file when it starts and when it is asked to stop.
SERVER = """
import os, signal, socket, sys, time
name, notes, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
def note(what):
    with open(notes, "a") as file:
        file.write(f"{time.monotonic()} {name} {what} {os.getpid()}\\n")
def stop(*_):
    note("stopped")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
note("started")
print("listening", flush=True)
with socket.create_server(("127.0.0.1", port)) as server:
    while True:
        server.accept()[0].close()
"""


STUBBORN = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(60)"


class Notes:
    def __init__(self, path: Path) -> None:
        self.path = path

    def of(self, what: str) -> list[str]:
        """The names of those who did it, in the order of time."""
        return [line[1] for line in self._lines() if line[2] == what]

    def times(self, what: str) -> list[float]:
        return [float(line[0]) for line in self._lines() if line[2] == what]

    def pids(self) -> list[int]:
        return [int(line[3]) for line in self._lines()]

    def _lines(self) -> list[list[str]]:
        return [line.split() for line in self.path.read_text().splitlines()] if self.path.exists() else []


@pytest.fixture
async def supervisor(data: Path) -> AsyncIterator[Supervisor]:
    # Whoever is asked to stop has time to do so, however busy the machine is.
    supervisor = Supervisor(data, stop_within=60.0)
    yield supervisor
    await supervisor.stop()


@pytest.fixture
def notes(data: Path) -> Notes:
    return Notes(data / "notes")


def script(name: str, code: str, *arguments: str, **options: Any) -> Child:
    options = {"ready": lambda: asyncio.sleep(0), **options}
    return Child(name=name, argv=(sys.executable, "-c", code, *arguments), **options)


def server(name: str, notes: Notes, port: int, **options: Any) -> Child:
    return script(name, SERVER, name, str(notes.path), str(port), ready=accepts(port), **options)


def accepts(port: int) -> Callable[[], Awaitable[None]]:
    async def ready() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    return ready


def says_up(supervisor: Supervisor, name: str) -> Callable[[], Awaitable[None]]:
    async def ready() -> None:
        assert "up" in supervisor.folders.log(name).read_text()

    return ready


async def test_children_start_side_by_side(supervisor: Supervisor, data: Path) -> None:
    """Two children that each wait for the other's start both become ready."""
    meet = "import pathlib, sys, time\npathlib.Path(sys.argv[1]).touch()\ntime.sleep(60)"

    def waits_for(name: str) -> Callable[[], Awaitable[None]]:
        async def ready() -> None:
            (data / name).stat()

        return ready

    await supervisor.start(
        script("left", meet, str(data / "left.up"), ready=waits_for("right.up")),
        script("right", meet, str(data / "right.up"), ready=waits_for("left.up")),
    )


async def test_dependents_start_after_and_stop_before(supervisor: Supervisor, notes: Notes) -> None:
    """A child that needs another starts when that one is ready, and is gone before it is asked to stop."""
    await supervisor.start(
        server("api", notes, free_port(), after=("worker", "external")),
        server("worker", notes, free_port(), after=("database",)),
        server("database", notes, free_port()),
    )
    await supervisor.stop()
    assert notes.of("started") == ["database", "worker", "api"]
    assert notes.of("stopped") == ["api", "worker", "database"]


async def test_child_that_dies_is_started_again(supervisor: Supervisor, notes: Notes) -> None:
    """A killed child comes back on the same port, and the log says how it ended and what it said last."""
    port = free_port()
    with structlog.testing.capture_logs() as logs:
        await supervisor.start(server("one", notes, port))
        first = supervisor.pid("one")
        assert first
        os.kill(first, signal.SIGKILL)
        await until(lambda: supervisor.pid("one") not in {None, first})
        await asyncio.wait_for(supervisor.ready("one"), 10)
    await accepts(port)()
    down = next(entry for entry in logs if entry["event"] == "embedded_child_down")
    assert down["child"] == "one"
    assert down["reason"] == "ended by SIGKILL: listening"


async def test_restarts_come_slower_and_slower(supervisor: Supervisor, notes: Notes) -> None:
    """A child that keeps dying is given 0.2, 0.4, 0.8… seconds of rest."""
    await supervisor.start(server("one", notes, free_port()))
    for lives in range(1, 4):
        os.kill(notes.pids()[-1], signal.SIGKILL)
        await until(lambda lives=lives: len(notes.pids()) > lives)  # type: ignore[misc]
        await asyncio.wait_for(supervisor.ready("one"), 10)
    times = notes.times("started")
    rests = [after - before for before, after in itertools.pairwise(times)]
    assert rests[0] >= 0.2
    assert rests[1] >= 0.4
    assert rests[2] >= 0.8


async def test_child_that_never_starts_is_an_error_of_one_line(supervisor: Supervisor) -> None:
    """The message holds the exit code, its last words and where its log is."""
    code = "import sys\nprint('some talk')\nsys.exit('No space left on device')"

    async def never() -> None:
        raise ConnectionError

    with pytest.raises(EmbeddedError) as error:
        await supervisor.start(script("one", code, ready=never))
    assert "\n" not in error.value.message
    assert "one does not start: ended with exit code 1" in error.value.message
    assert "No space left on device" in error.value.message
    assert "logs/one.log" in error.value.message


async def test_child_that_hangs_is_an_error_after_its_time(supervisor: Supervisor) -> None:
    """A child that runs but doesn't serve fails the start, and runs no more."""

    async def never() -> None:
        raise ConnectionRefusedError("nobody there")

    with pytest.raises(EmbeddedError, match=r"not ready after 1 s.*nobody there"):
        await supervisor.start(script("one", "import time\ntime.sleep(60)", ready=never, ready_within=1.0))
    assert supervisor.pid("one") is None


async def test_stubborn_child_is_killed_with_all_it_started(supervisor: Supervisor, data: Path) -> None:
    """A child that ignores SIGTERM is killed after its patience, and its own children with it."""
    code = (
        "import pathlib, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "below = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "pathlib.Path(sys.argv[1]).write_text(str(below.pid))\n"
        "time.sleep(60)"
    )

    async def ready() -> None:
        int((data / "below").read_text())

    await supervisor.start(script("one", code, str(data / "below"), ready=ready, stop_patience=0.3))
    own, below = supervisor.pid("one"), int((data / "below").read_text())
    assert own
    began = time.monotonic()
    await supervisor.stop()
    # It would have gone on for a minute.
    assert 0.3 <= time.monotonic() - began < 30
    assert identity(own) is None
    wait_for(lambda: identity(below) is None, 30)
    assert identity(below) is None


async def test_stop_ends_in_time_whatever_children_do(data: Path) -> None:
    """Three that ignore SIGTERM, one after the other, with more patience than there is time: done when it is up."""
    supervisor = Supervisor(data, stop_within=2.0)
    chain = {"first": (), "second": ("first",), "third": ("second",)}
    await supervisor.start(
        *(
            script(name, STUBBORN, after=after, ready=says_up(supervisor, name), stop_patience=60)
            for name, after in chain.items()
        )
    )
    began = time.monotonic()
    await supervisor.stop()
    assert time.monotonic() - began < 20
    assert STOP_SECONDS < 10


async def test_the_first_to_stop_leave_the_last_their_time(data: Path) -> None:
    """A worker that never ends has half of the time; the engine it depends on has the other half, in which its own
    helper, its end by force and the clearing up after it are done: the numbers they are told say so on any machine.
    """
    stop_within, told = 3.0, dict[str, tuple[float, float]]()
    supervisor = Supervisor(data, stop_within=stop_within)

    def telling(what: str) -> Callable[[float], Awaitable[None]]:
        async def tell(seconds: float) -> None:
            told[what] = (time.monotonic(), seconds)

        return tell

    def stubborn(name: str, **options: Any) -> Child:
        hooks = {"at_stop": telling(f"stop {name}"), "cleanup": telling(f"clear {name}")}
        return script(name, STUBBORN, ready=says_up(supervisor, name), stop_patience=60, **hooks, **options)

    await supervisor.start(stubborn("worker", after=("engine",)), stubborn("engine", force_seconds=1.0))
    began = time.monotonic()
    await supervisor.stop()
    first, patience = told["stop worker"]
    assert patience <= stop_within / 2 - Child.force_seconds
    cleared, _ = told["clear worker"]
    asked, patience = told["stop engine"]
    # It was told after the worker was cleared up, and its end counts from before the worker was asked.
    assert patience == 0 or cleared + patience <= first + stop_within - 1.0
    assert patience > 0 or asked > began + stop_within - 1.0
    _, within = told["clear engine"]
    # It had all of its time but the second of force.
    assert within <= 1.0


def test_each_rank_has_its_share_of_the_stop() -> None:
    """However the children hang together: those that all the others need are the last, and have till the end."""
    chain = {"api": (), "worker": ("database",), "database": (), "engine": ()}
    children = [script(name, "", after=after) for name, after in chain.items()]
    assert stop_shares(children) == {"api": 0.5, "worker": 0.5, "database": 1.0, "engine": 0.5}
    assert stop_shares([script("alone", "", after=("external",))]) == {"alone": 1.0}
    assert stop_shares([]) == {}


async def test_pause_and_resume(supervisor: Supervisor, notes: Notes) -> None:
    """A paused child stays down until it is resumed, then serves on its port."""
    port = free_port()
    await supervisor.start(server("one", notes, port))
    await supervisor.pause("one")
    assert supervisor.pid("one") is None
    with pytest.raises(ConnectionRefusedError):
        await accepts(port)()
    await supervisor.resume("one")
    await accepts(port)()


def test_leftovers_are_ended_and_strangers_are_not(data: Path) -> None:
    """The next start ends what a crash left running, but no process that merely has its number."""
    leftover = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    try:
        run = data / "run"
        run.mkdir()
        record = '{{"pid": {}, "identity": "{}", "stop_signal": 15}}'
        (run / "leftover.json").write_text(record.format(leftover.pid, identity(leftover.pid)))
        (run / "stranger.json").write_text(record.format(stranger.pid, "another boot/1"))
        (run / "broken.json").write_text("{")
        Supervisor(data)
        assert leftover.wait(5) == -signal.SIGTERM
        assert stranger.poll() is None
        assert list(run.iterdir()) == []
    finally:
        for process in (leftover, stranger):
            process.kill()
            process.wait()


HOLDER = """
import asyncio, sys
from pathlib import Path
from starter.embedded.child import Child
from starter.embedded.supervisor import STOP_SECONDS, Supervisor
async def main():
    supervisor = Supervisor(Path(sys.argv[1]))
    # Not Python: the interpreter may be closed to the other user.
    await supervisor.start(Child(name="one", argv=("/bin/sleep", "60"), ready=lambda: asyncio.sleep(0), uid=UID))
    await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help is Linux's")
@pytest.mark.parametrize("uid", [None, 65534])
def test_children_die_with_a_killed_supervisor(data: Path, uid: int | None) -> None:
    """kill -9 of the supervisor: the kernel ends its children, also one that runs as another user."""
    if uid and os.geteuid() != 0:
        pytest.skip("only root can give a child another user")
    code = HOLDER.replace("UID", str(uid))
    with subprocess.Popen([sys.executable, "-c", code, str(data)]) as holder:
        try:
            record = data / "run" / "one.json"
            wait_for(record.exists, 30)
            pid = int(json.loads(record.read_text())["pid"])
            wait_for(lambda: _program(pid) == "sleep", 30)
            assert _program(pid) == "sleep"
        finally:
            holder.kill()
    wait_for(lambda: identity(pid) is None, 30)
    assert identity(pid) is None


def _program(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()
