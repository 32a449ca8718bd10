"""The `codehub` command as its users have it: a process, with a configuration of its own, or one at a terminal."""

import asyncio
import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.api.world import PASSWORD
from tests.cli.forker import ROOT, forker

COMMAND = [sys.executable, "-m", "starter.cli"]
SECONDS = 60.0
# A session's first process that opens a terminal gets it as its controlling one, where passwords are asked for.
TAKE_TERMINAL = "import os, sys; os.open(os.ttyname(0), os.O_RDWR); os.execv(sys.argv[1], sys.argv[1:])"


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        """Of a command with --json."""
        return json.loads(self.err)["error"]


@dataclass(frozen=True)
class Cli:
    config: Path
    environment: dict[str, str] = field(default_factory=dict)

    def having(self, **environment: str) -> "Cli":
        return replace(self, environment={**self.environment, **environment})

    async def __call__(self, *words: str, stdin: str = "") -> Result:
        """To its end. It is a fork of a process that has loaded it already; `running` starts one from nothing."""
        code, out, err = await asyncio.to_thread(forker().run, words, self.env, stdin.encode(), SECONDS)
        return Result(code, out.decode(), err.decode())

    async def login(self, url: str, username: str) -> Result:
        result = await self("login", "--url", url, "-u", username, "--password-stdin", stdin=PASSWORD)
        assert result.code == 0, result
        return result

    @asynccontextmanager
    async def running(self, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            *words,
            cwd=ROOT,
            env=self.env,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.communicate()

    @property
    def env(self) -> dict[str, str]:
        """Nothing of this machine's own codehub."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.config),
            "CODEHUB_CONFIG": str(self.config),
            "CODEHUB_DATA": str(self.config / "no-data"),
            **self.environment,
        }


class Terminal:
    """A command at a terminal of its own. `screen` is what it has shown, without colours and movements."""

    def __init__(self, cli: Cli, *words: str, columns: int = 80, colours: bool = False) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self._process = subprocess.Popen(
            [sys.executable, "-c", TAKE_TERMINAL, *COMMAND, *words],
            cwd=ROOT,
            env={**cli.env, "TERM": "xterm-256color", **({} if colours else {"NO_COLOR": "1"})},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self.raw = ""

    @property
    def screen(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.raw).replace("\r\n", "\n")

    def until(self, text: str) -> None:
        deadline = time.monotonic() + SECONDS
        while text not in self.screen:
            assert time.monotonic() < deadline, f"{text!r} is not in {self.screen!r}"
            assert self._read(), f"{text!r} is not in {self.screen!r}"

    def write(self, text: str) -> None:
        os.write(self._master, text.encode())

    def end(self) -> int:
        """Its exit code, once it has ended by itself."""
        while self._read():
            pass
        return self._process.wait(SECONDS)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._master], [], [], SECONDS)
        assert ready, f"silent after {self.screen!r}"
        try:
            data = os.read(self._master, 65536)
        except OSError:
            # The other end is closed.
            return False
        self.raw += data.decode(errors="replace")
        return bool(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._master)
