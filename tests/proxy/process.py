"""The server as a process of its own, as tests.proxy.world has it inside: `python -m tests.proxy.process …`.

It prints where it is and who may come in, and serves until SIGTERM or until its standard input ends.
"""

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop

from tests.proxy.world import serving


@dataclass(frozen=True)
class Served:
    process: Process
    port: int
    cookie: str
    path: str

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def head(self, method: str, *lines: str) -> bytes:
        first = [f"{method} {self.path} HTTP/1.1", f"Host: {self.host}", f"Cookie: {self.cookie}"]
        return "\r\n".join([*first, f"Origin: http://{self.host}", *lines, "", ""]).encode()

    def memory(self) -> tuple[int, int]:
        """Resident now, and at most since `forget_peak`."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = {line.split(":")[0]: line.split()[1] for line in status.splitlines() if line.startswith("Vm")}
        return int(found["VmRSS"]) * 1024, int(found["VmHWM"]) * 1024

    def forget_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")


@asynccontextmanager
async def served(database_url: str, redis_url: str, endpoint: str) -> AsyncIterator[Served]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.proxy.process", database_url, redis_url, endpoint),
        cwd=Path(__file__).parents[2],
        stdin=PIPE,
        stdout=PIPE,
    )
    assert process.stdout
    try:
        while True:
            line = await asyncio.wait_for(process.stdout.readline(), 60)
            assert line, "it did not start"
            if line.startswith(b"{"):
                break
        yield Served(process, **json.loads(line))
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def _main(database_url: str, redis_url: str, endpoint: str) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_reader(sys.stdin.fileno(), stop.set)
    async with serving(database_url, redis_url) as world:
        alice = await world.person("alice")
        path = f"/w/{await world.row(alice, endpoint)}/"
        print(json.dumps({"port": world.port, "cookie": alice.cookie, "path": path}), flush=True)  # noqa: T201
        await stop.wait()


if __name__ == "__main__":
    uvloop.run(_main(*sys.argv[1:]))
