"""The proxy against configurable-http-proxy and against no proxy at all: same upstream, same minute, rounds in turn.

`python -m bench.proxy` prints the rows and writes them to proxy.json. It needs wrk and npm.
"""

import asyncio
import json
import os
import re
import shutil
import socket
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import uuid4

import websockets

from bench.proxy_parts import SESSION, WORKSPACE

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
SECONDS = int(os.environ.get("BENCH_SECONDS", "4"))
CONNECTIONS = 32
ECHOES = 400
RIVAL = "configurable-http-proxy@5"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "codehub-bench"


@dataclass(frozen=True, slots=True)
class Row:
    """`ratio` is against the floor or rival that `against` names, measured in the same run."""

    name: str
    value: float
    unit: str
    ratio: float | None = None
    against: str = ""
    goal: str = ""
    is_met: bool | None = None


@dataclass(frozen=True, slots=True)
class Load:
    requests_per_second: float
    p50_ms: float
    p99_ms: float


class Missing(Exception):
    """A tool that this benchmark needs; the message says how to get it."""


async def run(rounds: int = ROUNDS, seconds: int = SECONDS) -> list[Row]:
    wrk = shutil.which("wrk")
    if wrk is None:
        raise Missing("wrk is not installed: apt-get install wrk")
    async with AsyncExitStack() as stack:
        upstream, echo = _free_port(), _free_port()
        await stack.enter_async_context(_part("upstream", upstream, str(echo)))
        ours = await stack.enter_async_context(_ours(upstream, echo))
        theirs = await stack.enter_async_context(_rival(upstream))
        theirs_echo = await stack.enter_async_context(_rival(echo))
        urls = {
            "direct": f"http://127.0.0.1:{upstream}/",
            "codehub": f"http://127.0.0.1:{ours}/w/{WORKSPACE}/",
            "configurable-http-proxy": f"http://127.0.0.1:{theirs}/",
        }
        loads: dict[str, list[Load]] = {name: [] for name in urls}
        for _ in range(rounds):
            for name, url in urls.items():
                loads[name].append(await _load(wrk, url, seconds))
        sockets = {
            "direct": f"ws://127.0.0.1:{echo}/",
            "codehub": f"ws://127.0.0.1:{ours}/w/{WORKSPACE.replace('0', '1')}/",
            "configurable-http-proxy": f"ws://127.0.0.1:{theirs_echo}/",
        }
        echoes: dict[str, list[float]] = {name: [] for name in sockets}
        for _ in range(rounds):
            for name, url in sockets.items():
                echoes[name].append(await _echo(url))
    return [*_load_rows(loads), *_echo_rows(echoes)]


def _load_rows(loads: dict[str, list[Load]]) -> list[Row]:
    rates = {name: statistics.median(load.requests_per_second for load in found) for name, found in loads.items()}
    tails = {name: statistics.median(load.p99_ms for load in found) for name, found in loads.items()}
    rival = "configurable-http-proxy"
    rate, tail = rates["codehub"] / rates[rival], tails["codehub"] / tails[rival]
    return [
        Row("proxy: requests/s, no proxy", rates["direct"], "1/s"),
        Row(f"proxy: requests/s, {rival}", rates[rival], "1/s"),
        Row("proxy: requests/s", rates["codehub"], "1/s", rate, rival, "≥ 1.2", rate >= 1.2),
        Row(f"proxy: p99, {rival}", tails[rival], "ms"),
        Row("proxy: p99", tails["codehub"], "ms", tail, rival, "≤ 1", tail <= 1),
    ]


def _echo_rows(echoes: dict[str, list[float]]) -> list[Row]:
    p50 = {name: statistics.median(found) for name, found in echoes.items()}
    ratio = p50["codehub"] / p50["direct"]
    return [
        Row("proxy: WebSocket echo p50, no proxy", p50["direct"], "ms"),
        Row("proxy: WebSocket echo p50, configurable-http-proxy", p50["configurable-http-proxy"], "ms"),
        Row("proxy: WebSocket echo p50", p50["codehub"], "ms", ratio, "direct", "≤ 2", ratio <= 2),
    ]


async def _load(wrk: str, url: str, seconds: int) -> Load:
    process = await asyncio.create_subprocess_exec(
        wrk,
        "-t1",
        f"-c{CONNECTIONS}",
        f"-d{seconds}s",
        "--latency",
        "-H",
        f"Cookie: session={SESSION}",
        url,
        stdout=PIPE,
    )
    text = (await process.communicate())[0].decode()
    if "Non-2xx" in text:
        raise RuntimeError(f"{url} did not answer 200:\n{text}")
    rate = re.search(r"Requests/sec:\s+([\d.]+)", text)
    if rate is None:
        raise RuntimeError(text)
    return Load(float(rate[1]), _milliseconds(text, "50%"), _milliseconds(text, "99%"))


def _milliseconds(text: str, percentile: str) -> float:
    found = re.search(rf"{percentile}\s+([\d.]+)(us|ms|s)", text)
    if found is None:
        raise RuntimeError(text)
    return float(found[1]) * {"us": 0.001, "ms": 1, "s": 1000}[found[2]]


async def _echo(url: str) -> float:
    """Milliseconds from a message to its echo, one at a time: the median."""
    host = url.split("/")[2]
    times = []
    headers = {"Cookie": f"session={SESSION}"}
    async with websockets.connect(url, origin=f"http://{host}", additional_headers=headers, proxy=None) as client:  # type: ignore[arg-type]
        for _ in range(ECHOES):
            started = time.perf_counter()
            await client.send("x" * 64)
            await client.recv()
            times.append(time.perf_counter() - started)
    return statistics.median(times) * 1000


@asynccontextmanager
async def _ours(upstream: int, echo: int) -> AsyncIterator[int]:
    """The real server with its database and Redis, which are needed for the first request only."""
    from starter.embedded.stack import Stack, StackConfig

    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="codehub-bench-") as data:
        Path(data).chmod(0o711)
        unused = "unused:"
        config = StackConfig(data=Path(data), s3_endpoint=unused, temporal_address=unused, docker_host=unused)
        async with Stack(config) as stack:
            arguments = (stack.env["DATABASE_URL"], stack.env["REDIS_URL"], str(upstream), str(echo))
            async with _part("serve", port, *arguments):
                yield port


@asynccontextmanager
async def _part(name: str, port: int, *arguments: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.proxy_parts", name, str(port), *arguments, cwd=Path(__file__).parents[1]
    )
    async with _ended(process):
        await _listening(port, process)
        yield process


@asynccontextmanager
async def _rival(target: int) -> AsyncIterator[int]:
    binary = CACHE / "node_modules" / ".bin" / "configurable-http-proxy"
    if not binary.exists():
        npm = shutil.which("npm")
        if npm is None:
            raise Missing("npm is not installed: apt-get install npm")
        CACHE.mkdir(parents=True, exist_ok=True)
        install = await asyncio.create_subprocess_exec(
            npm, "install", "--no-audit", "--no-fund", "--silent", "--prefix", str(CACHE), RIVAL
        )
        if await install.wait():
            raise Missing(f"npm can't install {RIVAL}")
    port, api = _free_port(), _free_port()
    process = await asyncio.create_subprocess_exec(
        str(binary),
        *("--ip", "127.0.0.1", "--port", str(port), "--api-ip", "127.0.0.1", "--api-port", str(api)),
        *("--default-target", f"http://127.0.0.1:{target}", "--log-level", "error"),
        env={**os.environ, "CONFIGPROXY_AUTH_TOKEN": uuid4().hex},
        stdout=DEVNULL,
    )
    async with _ended(process):
        await _listening(port, process)
        yield port


@asynccontextmanager
async def _ended(process: Process) -> AsyncIterator[None]:
    try:
        yield
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def _listening(port: int, process: Process) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.returncode is None:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return
    raise RuntimeError(f"nothing listens on port {port}")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def main() -> None:
    rows = asyncio.run(run())
    for row in rows:
        ratio = f"{row.ratio:6.2f} × {row.against}" if row.ratio is not None else ""
        goal = f"goal {row.goal}: {'met' if row.is_met else 'NOT met'}" if row.goal else ""
        print(f"{row.name:55} {row.value:10.2f} {row.unit:4} {ratio:32} {goal}")
    Path("proxy.json").write_text(json.dumps([asdict(row) for row in rows], indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
