"""Commands without the half second that each takes to load: one process has loaded them, and each is a fork of it."""

import atexit
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import NoReturn

ROOT = Path(__file__).parents[2]
MESSAGE = 1 << 20
LOADED = (
    "asyncio",
    "rich.progress",
    "rich.table",
    "starter.cli",
    "starter.commands.checks.docker",
    "starter.commands.checks.machine",
    "starter.commands.checks.postgres",
    "starter.commands.checks.redis",
    "starter.commands.checks.s3",
    "starter.commands.checks.temporal",
    "starter.commands.collecting",
    "starter.commands.inspection",
    "starter.commands.stores",
    "starter.commands.waiting",
    "typer.completion",
)


class Forker:
    def __init__(self) -> None:
        self._commands, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            words = [sys.executable, "-m", "tests.cli.forker", str(theirs.fileno())]
            self._process = subprocess.Popen(words, cwd=ROOT, pass_fds=[theirs.fileno()])

    def run(
        self, words: tuple[str, ...], environment: Mapping[str, str], stdin: bytes, seconds: float
    ) -> tuple[int, bytes, bytes]:
        """Exit code, standard output, standard error."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, TemporaryFile() as given, TemporaryFile() as out, TemporaryFile() as err:
            given.write(stdin)
            given.seek(0)
            socket.send_fds(self._commands, [b"run"], [theirs.fileno()])
            theirs.close()
            asked = json.dumps({"words": words, "environment": dict(environment)}).encode()
            socket.send_fds(ours, [asked], [file.fileno() for file in (given, out, err)])
            pid = int(ours.recv(MESSAGE))
            ours.settimeout(seconds)
            try:
                code = int(ours.recv(MESSAGE))
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise
            out.seek(0)
            err.seek(0)
            return code, out.read(), err.read()

    def close(self) -> None:
        self._commands.close()
        self._process.wait()


@cache
def forker() -> Forker:
    """One for all tests of this process."""
    made = Forker()
    atexit.register(made.close)
    return made


def serve(commands: socket.socket) -> None:
    """Until the other end is closed, as it is when the tests end, however they do."""
    # Nobody waits for those who wait for the commands.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, handles, _, _ = socket.recv_fds(commands, MESSAGE, 1)
        if not message:
            return
        if os.fork() == 0:
            commands.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _follow(socket.socket(fileno=handles[0]))
        os.close(handles[0])


def _follow(caller: socket.socket) -> NoReturn:
    message, handles, _, _ = socket.recv_fds(caller, MESSAGE, 3)
    pid = os.fork()
    if pid == 0:
        caller.close()
        _become(handles, **json.loads(message))
    caller.send(str(pid).encode())
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with suppress(OSError):
        caller.send(str(code).encode())
    os._exit(0)


def _become(handles: list[int], words: list[str], environment: dict[str, str]) -> NoReturn:
    for number, handle in enumerate(handles):
        os.dup2(handle, number)
        os.close(handle)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["codehub", *words]
    code = 1
    try:
        from starter.cli import main

        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter would
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _load() -> None:
    """What commands load when they run."""
    for name in LOADED:
        importlib.import_module(name)


if __name__ == "__main__":
    _load()
    with socket.socket(fileno=int(sys.argv[1])) as given:
        serve(given)
