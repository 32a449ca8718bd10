"""An installation as its operator has it: a data directory, and `codehub up` on it, killed and started at will."""

import json
import os
import signal
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

import asyncpg

from adapters.docker.config import DockerConfig
from adapters.docker.runtime import DockerRuntime
from starter.commands.running_stack import fill
from tests.cli.console import COMMAND, Cli
from tests.cli.forker import ROOT
from tests.embedded.image import remove_all
from tests.ports import free_port

PASSWORD = "a secret"
READY = "Ctrl-C stops everything"
STOP_SECONDS = 120.0


class Installation:
    def __init__(self, data: Path, config: Path, **environment: str) -> None:
        self.data = data
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        self.person = Cli(config)
        """Logged in nowhere at first."""
        self.operator = self.person.having(CODEHUB_DATA=str(data))
        self.starter = self.operator.having(CODEHUB_PORT=str(port), CODEHUB_ADMIN_PASSWORD=PASSWORD, **environment)
        self._process: subprocess.Popen[str] | None = None

    def up(self) -> None:
        """Ready when this returns; started only where it doesn't run."""
        if self._process is not None:
            return
        with (self.data / "up.err").open("ab") as log:
            self._process = subprocess.Popen(
                [*COMMAND, "up"],
                cwd=ROOT,
                env=self.starter.env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        shown = ""
        assert self._process.stdout
        while READY not in shown:
            line = self._process.stdout.readline()
            assert line, f"{shown}\n{self.errors}"
            shown += line

    def kill(self) -> None:
        """All of it at once, its children first: none of them gets to know of another's death."""
        assert self._process
        for record in (self.data / "run").glob("*.json"):
            if pid := json.loads(record.read_text()).get("pid"):
                os.kill(pid, signal.SIGKILL)
        self._process.kill()
        self._process.communicate()
        self._process = None

    def interrupt(self) -> tuple[int, str]:
        """As Ctrl-C does: its exit code and last words."""
        assert self._process
        process, self._process = self._process, None
        process.send_signal(signal.SIGINT)
        try:
            out, _ = process.communicate(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return process.returncode, out

    async def log_in(self) -> None:
        words = ("login", "--url", self.url, "-u", "admin", "--password-stdin")
        logged = await self.person(*words, stdin=PASSWORD)
        assert logged.code == 0, logged.err

    @property
    def errors(self) -> str:
        return (self.data / "up.err").read_text(errors="replace")

    @property
    def docker_host(self) -> str:
        return fill(self.operator.env).environment["DOCKER_HOST"]

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process:
            self.interrupt()


async def leave_nothing(installation: Installation) -> None:
    """End it, and remove what is its own from an engine that isn't."""
    environment = fill(installation.operator.env).environment
    host = environment["DOCKER_HOST"]
    connection = await asyncpg.connect(environment["DATABASE_URL"], ssl=False)
    try:
        label = await connection.fetchval("SELECT id FROM installation")
    finally:
        await connection.close()
    installation.interrupt()
    remove_all(host, label)
    runtime = DockerRuntime(DockerConfig(label, docker_host=host))
    await runtime.remove_network()
    await runtime.close()


def stalled() -> float:
    """Seconds, since the machine's start, in which somebody who could have worked waited for a processor."""
    try:
        words = Path("/proc/pressure/cpu").read_text(encoding="ascii").split()
    except OSError:
        return 0.0
    return int(words[4].removeprefix("total=")) / 1e6
