"""A supervised process: what it is (`Child`), and one run of it (`Process`)."""

import asyncio
import contextlib
import json
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from starter.embedded import launch
from starter.embedded.errors import EmbeddedError
from starter.embedded.record import signal_group

log = structlog.get_logger()

KILLED_SECONDS = 3.0
LOG_LIMIT_BYTES = 16 * 1024 * 1024


async def _nothing() -> None: ...


async def _nothing_within(_: float) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Child:
    """`ready` returns once the child serves and raises while it doesn't (it is asked again until `ready_within`)."""

    name: str
    argv: tuple[str, ...]
    ready: Callable[[], Awaitable[None]]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    uid: int | None = None
    # With `uid`: may also pass through directories that are closed to that user (Linux).
    search: bool = False
    after: tuple[str, ...] = ()
    ready_within: float = 30.0
    stop_signal: signal.Signals = signal.SIGTERM
    stop_patience: float = 5.0
    # Of the time for its stop, what is kept for killing it and for `cleanup`.
    force_seconds: float = 0.5
    # What the kernel sends when the supervisor is gone (Linux).
    death_signal: signal.Signals = signal.SIGKILL
    # Before each start; beside a stop, to help it along; once after the last stop. Those two are told the seconds left.
    prepare: Callable[[], Awaitable[None]] = _nothing
    at_stop: Callable[[float], Awaitable[None]] = _nothing_within
    cleanup: Callable[[float], Awaitable[None]] = _nothing_within


@dataclass(frozen=True)
class Folders:
    """Where the supervisor keeps what belongs to its children."""

    data: Path

    def __post_init__(self) -> None:
        try:
            self.logs.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.run.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise EmbeddedError(
                f"Can't write to {self.data} ({error.strerror}): name another directory in CODEHUB_DATA."
            ) from error

    @property
    def logs(self) -> Path:
        return self.data / "logs"

    @property
    def run(self) -> Path:
        return self.data / "run"

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def record(self, name: str) -> Path:
        return self.run / f"{name}.json"


class Process:
    """One run of a child. Started without a suspension point: it can't be lost to a cancellation."""

    def __init__(self, child: Child, folders: Folders) -> None:
        self.child = child
        self._record = folders.record(child.name)
        self._log = folders.log(child.name)
        trim_log(self._log)
        try:
            with self._log.open("ab") as output:
                self._log_start = output.tell()
                self._popen = subprocess.Popen(
                    _command(child, self._record),
                    env={**os.environ, **child.env},
                    cwd=child.cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    # A session of its own: Ctrl-C at the terminal reaches the supervisor only, which stops in order.
                    start_new_session=True,
                )
        except OSError as error:
            raise EmbeddedError(f"Can't start {child.name} ({error.strerror}): {self._log}") from error
        self.pid = self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        if self._popen.returncode is None and _has_ended(self.pid):
            # What it started must not outlive it. Until it is reaped, its number, and so its group's, is its own.
            signal_group(self.pid, signal.SIGKILL)
            self._popen.wait()
            self._record.unlink(missing_ok=True)
        return self._popen.returncode

    def has_ended(self) -> bool:
        return self.exit_code is not None

    async def wait(self) -> int:
        while (code := self.exit_code) is None:
            await _end_of(self.pid)
        return code

    def send(self, number: int) -> None:
        """To the child alone, never to a process that got its number later: it is reaped here only."""
        if self.exit_code is None:
            os.kill(self.pid, number)

    async def stop(self, patience: float) -> None:
        """Ask; after `patience` seconds, insist. Nothing of its process group is left."""
        self.send(self.child.stop_signal)
        help_along = asyncio.ensure_future(self.child.at_stop(patience))
        try:
            async with asyncio.timeout(patience):
                await self.wait()
        except TimeoutError:
            await self.kill(self.child.force_seconds)
        finally:
            help_along.cancel()
            await asyncio.gather(help_along, return_exceptions=True)

    async def kill(self, within: float = KILLED_SECONDS) -> None:
        """At once, with all of its group. Only one that hangs in the kernel is left behind, and said so."""
        if self.exit_code is None:
            signal_group(self.pid, signal.SIGKILL)
            try:
                async with asyncio.timeout(within):
                    await self.wait()
            except TimeoutError:
                log.warning("embedded_child_hangs", child=self.child.name, pid=self.pid)

    def ending(self) -> str:
        """How it ended and its last words, on one line."""
        code = self.exit_code
        if code is None:
            how = "runs"
        elif code < 0:
            how = f"ended by {_signal_name(-code)}"
        else:
            how = f"ended with exit code {code}"
        words = last_lines(self._log, since=self._log_start)
        return f"{how}: {words}" if words else how


async def run_once(child: Child, folders: Folders, within: float) -> None:
    """Run a command to its end, with the same care as a child; `ready` isn't asked."""
    process = Process(child, folders)
    try:
        async with asyncio.timeout(within):
            code = await process.wait()
    except TimeoutError:
        raise EmbeddedError(f"{child.name} took longer than {within:.0f} s: see {folders.log(child.name)}") from None
    finally:
        await process.kill()
    if code != 0:
        raise EmbeddedError(f"{child.name} {process.ending()}")


def last_lines(path: Path, *, since: int = 0, count: int = 3) -> str:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(since if since <= size else 0, size - 4096))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-count:])


def trim_log(path: Path) -> None:
    """Keep one former log. Children append, so a file emptied under them goes on from its start."""
    with contextlib.suppress(OSError):
        if path.stat().st_size > LOG_LIMIT_BYTES:
            former = path.with_suffix(".log.1")
            former.write_bytes(path.read_bytes())
            os.truncate(path, 0)


def _command(child: Child, record: Path) -> list[str]:
    spec = {
        "parent": os.getpid(),
        "record": str(record),
        "stop_signal": int(child.stop_signal),
        "death_signal": int(child.death_signal),
        "uid": child.uid,
        "gid": None if child.uid is None else pwd.getpwuid(child.uid).pw_gid,
        "search": child.search,
    }
    return [sys.executable, "-I", "-S", launch.__file__, json.dumps(spec), *child.argv]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _has_ended(pid: int) -> bool:
    """Without reaping it."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


async def _end_of(pid: int) -> None:
    """Return when the process has ended; on systems without pidfd, after a moment (the caller asks again)."""
    try:
        handle = os.pidfd_open(pid)
    except (AttributeError, OSError):
        await asyncio.sleep(0.1)
        return
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    loop.add_reader(handle, gone.set)
    try:
        await gone.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)
