"""`codehub worker` and `codehub api` as processes of their own; what they log is kept and can be waited for."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
START_SECONDS = 180.0


class CodehubProcess:
    def __init__(
        self,
        command: str,
        environment: Mapping[str, str],
        log: Path,
        module: str = "starter.cli",
        python: str = sys.executable,
    ) -> None:
        """Of this checkout, or of another installation by its `python`."""
        self.log = log
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [python, "-m", module, *command.split()],
                cwd=ROOT if python == sys.executable else log.parent,
                env={"PATH": os.environ["PATH"], "LOG_FORMAT": "json", **environment},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    @property
    def output(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    @property
    def events(self) -> list[dict[str, Any]]:
        # The last line may be half written.
        whole, _, _ = self.output.rpartition("\n")
        return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    async def said(self, event: str, seconds: float = START_SECONDS, **fields: str) -> dict[str, Any]:
        """The first line of its log with this event, and these values in it."""

        def find() -> dict[str, Any] | None:
            wanted = (line for line in self.events if line.get("event") == event)
            return next((line for line in wanted if all(line.get(key) == fields[key] for key in fields)), None)

        deadline = time.monotonic() + seconds
        while True:
            # Asked first: it may say it, and end, at any moment.
            alive = self.alive
            if (found := find()) is not None:
                return found
            assert alive, f"it ended with {self._process.returncode}: {self.output[-2000:]}"
            assert time.monotonic() < deadline, f"it did not say {event} {fields}: {self.output[-2000:]}"
            await asyncio.sleep(0.02)

    @property
    def pid(self) -> int:
        return self._process.pid

    def memory(self) -> tuple[int, int]:
        """Resident now, and at most since `forget_peak`."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = {line.split(":")[0]: line.split()[1] for line in status.splitlines() if line.startswith("Vm")}
        return int(found["VmRSS"]) * 1024, int(found["VmHWM"]) * 1024

    def forget_peak(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """It stands still, and does not know."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    async def ended(self, seconds: float = START_SECONDS) -> int:
        """Its exit code."""
        deadline = time.monotonic() + seconds
        while self.alive:
            assert time.monotonic() < deadline, f"it goes on: {self.output[-2000:]}"
            await asyncio.sleep(0.02)
        return self._process.returncode


async def until(condition: Callable[[], Awaitable[bool]], seconds: float, what: str = "waited in vain") -> None:
    deadline = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.05)
