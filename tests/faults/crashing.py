"""A supervisor of a worker that is killed: at a named point, by itself, or at any moment, from here.

Workers are forked from a process that has imported everything: a start takes a fraction of a second, and hundreds of
kills fit into minutes.
"""

import asyncio
import os
import signal
import time
from collections.abc import Mapping
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Self
from uuid import uuid4

from tests.faults import worker as crashing_worker
from tests.faults.proxy import Condition

SECONDS = 180.0
_FORKS = get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.faults.worker"])


class CrashingWorker:
    """`async with CrashingWorker(environment, folder) as worker`; what is alive at the end is killed."""

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        self._environment = environment
        self._folder = folder
        self._process: ForkServerProcess | None = None
        self._log = folder / "none"
        self.kills = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.kill()

    async def start(self, crash_at: str = "", **environment: str) -> None:
        """Once it returns, the worker takes work. It dies by itself at `crash_at`."""
        name = uuid4().hex[:8]
        self._log = self._folder / f"worker-{name}.log"
        crash = {"CRASH_AT": crash_at, "CRASH_MARKER": str(self._folder / f"crashed-{name}")}
        given = {"PATH": os.environ["PATH"], "LOG_FORMAT": "json", **self._environment, **environment, **crash}
        self._process = _FORKS.Process(target=crashing_worker.run, args=(given, str(self._log)))
        self._process.start()
        await self._until(lambda: '"worker_ready"' in self.words or self.died, "it does not get ready")

    @property
    def words(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""

    @property
    def died(self) -> bool:
        assert self._process
        code = self._process.exitcode
        assert code in {None, -signal.SIGKILL}, f"it ended with {code}: {self.words[-3000:]}"
        return code is not None

    @property
    def pid(self) -> int:
        assert self._process
        assert self._process.pid
        return self._process.pid

    def pause(self) -> None:
        """It stands still, and does not know."""
        os.kill(self.pid, signal.SIGSTOP)

    async def until_dead(self) -> None:
        """It has reached its point."""
        await self._until(lambda: self.died, "it did not reach its point")
        self.kills += 1

    def kill(self) -> None:
        """kill -9, now."""
        if self._process is None:
            return
        if self._process.is_alive():
            self._process.kill()
            self.kills += 1
        self._process.join()

    async def _until(self, condition: Condition, otherwise: str) -> None:
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"{otherwise}: {self.words[-3000:]}"
            await asyncio.sleep(0.02)
