"""A process that holds a stack, as `codehub up` does: `python -m tests.embedded.up '{"data": …}'`.

It prints one line of JSON when all is ready, and ends on SIGINT or SIGTERM. `Up` is that process for a test.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import structlog

from starter.embedded.dockerd import Dockerd
from starter.embedded.errors import EmbeddedError
from starter.embedded.launch import identity
from starter.embedded.record import wait_for
from starter.embedded.stack import Stack, StackConfig, until_signal

NOWHERE = "unix:///nowhere"


class Up:
    """Everything but what `external` names is started; a Docker engine only with `own_engine="yes"`."""

    def __init__(self, data: Path, **external: str | None) -> None:
        arguments = {"data": str(data), "docker_host": NOWHERE, **external}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.embedded.up", json.dumps(arguments)],
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            _, self.error = self._process.communicate()
            self._close()
            raise EmbeddedError(self.error.strip())
        started: dict[str, Any] = json.loads(line)
        self.env: dict[str, str] = started["env"]
        self.children: dict[str, int] = started["children"]
        self._identities = {pid: identity(pid) for pid in self.children.values()}

    def interrupt(self) -> int:
        """As Ctrl-C does; returns the exit code."""
        self._process.send_signal(signal.SIGINT)
        code = self._process.wait(60)
        self._close()
        return code

    def kill(self) -> None:
        """The supervisor alone, as `kill -9` does."""
        self._process.kill()
        self._process.wait()
        self._close()

    def kill_all(self) -> None:
        """All at once, the services first: none of them gets to know of the other's death."""
        for pid in self.children.values():
            os.kill(pid, signal.SIGKILL)
        self.kill()

    def alive(self) -> list[str]:
        return [name for name, pid in self.children.items() if identity(pid) == self._identities[pid]]

    def gone(self, seconds: float) -> bool:
        """Whether no child lives any more, `seconds` from now at the latest."""
        wait_for(lambda: not self.alive(), seconds)
        return not self.alive()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.interrupt()

    def _close(self) -> None:
        for stream in (self._process.stdout, self._process.stderr):
            assert stream
            stream.close()


async def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait for it; fail when it takes longer."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.02)


async def _main(arguments: dict[str, Any]) -> None:
    own_engine = arguments.pop("own_engine", None)
    config = StackConfig(**{**arguments, "data": Path(arguments["data"]), "search_attributes": {"Phase": "Keyword"}})
    with until_signal():
        async with Stack(config) as stack:
            if own_engine:
                dockerd = Dockerd.from_state(stack.data, stack.state)
                await stack.add(dockerd.child())
                stack.env["DOCKER_HOST"] = dockerd.host
            names = ("postgres", "valkey", "seaweed", "temporal", "dockerd")
            children = {name: stack.supervisor.pid(name) for name in names if name in stack.supervisor}
            print(json.dumps({"env": stack.env, "children": children}), flush=True)  # noqa: T201
            await stack.forever()


if __name__ == "__main__":
    # Standard output is for the one line.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    try:
        asyncio.run(_main(json.loads(sys.argv[1])))
    except EmbeddedError as error:
        sys.exit(error.message)
