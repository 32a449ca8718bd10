"""The proxy against configurable-http-proxy and against no proxy at all: same upstream, same minute, rounds in turn.

It needs wrk and npm.
"""

import asyncio
import os
import re
import shutil
import socket
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import websockets

from bench.part import Part
from bench.proxy_parts import ECHO_WORKSPACE, SESSION, WORKSPACE
from bench.row import Row
from bench.sizes import Sizes

T = TypeVar("T")

CONNECTIONS = 32
ECHOES = 400
TIME = f"proxy: time of a request, {CONNECTIONS} at once"
CPU = "proxy: CPU of a request"
TAIL = "proxy: p99"
ECHO = "proxy: WebSocket echo, p50"
OURS, DIRECT, RIVAL = "codehub", "direct", "configurable-http-proxy"
RIVAL_VERSION = "5"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "codehub-bench"


@dataclass(frozen=True, slots=True)
class Load:
    requests_per_second: float
    p99_ms: float
    cpu_ms: float
    """Of the process that answers, for each request: what a busy machine does not change."""


@dataclass(frozen=True, slots=True)
class Server:
    port: int
    pid: int


class Missing(Exception):
    """A tool that this benchmark needs; the message says how to get it."""


async def run(_: None, part: Part, sizes: Sizes) -> None:
    """It needs no installation: the server it measures has a workspace that no engine knows."""
    try:
        wrk, rival = await _wrk(), await _rival_program()
    except Missing as missing:
        part.add(*(Row.unmeasured(name, str(missing)) for name in (TIME, CPU, TAIL, ECHO)))
        return
    async with AsyncExitStack() as stack:
        upstream, echo = _free_port(), _free_port()
        direct = await stack.enter_async_context(_part("upstream", upstream, str(echo)))
        ours = await stack.enter_async_context(_ours(upstream, echo))
        theirs = await stack.enter_async_context(_rival(rival, upstream))
        theirs_echo = await stack.enter_async_context(_rival(rival, echo))
        urls = {DIRECT: (direct, "/"), OURS: (ours, f"/w/{WORKSPACE}/"), RIVAL: (theirs, "/")}
        loads: dict[str, list[Load]] = {name: [] for name in urls}
        for server, path in urls.values():
            # What is compiled on the way, and the first connections, are not what a request costs.
            await _load(wrk, server, path, 1)
        for number in range(sizes.load_rounds):
            for name, (server, path) in _in_turn(urls, number):
                loads[name].append(await _load(wrk, server, path, sizes.load_seconds))
        sockets = {
            DIRECT: f"ws://127.0.0.1:{echo}/",
            OURS: f"ws://127.0.0.1:{ours.port}/w/{ECHO_WORKSPACE}/",
            RIVAL: f"ws://127.0.0.1:{theirs_echo.port}/",
        }
        echoes: dict[str, list[float]] = {name: [] for name in sockets}
        for number in range(sizes.load_rounds):
            for name, url in _in_turn(sockets, number):
                echoes[name].append(await _echo(url))
    part.add(*_rows(loads, echoes))


def _in_turn(contestants: Mapping[str, T], number: int) -> list[tuple[str, T]]:
    """Each of them first in its turn."""
    items = list(contestants.items())
    return items[number % len(items) :] + items[: number % len(items)]


def _rows(loads: dict[str, list[Load]], echoes: dict[str, list[float]]) -> list[Row]:
    rates = {name: statistics.median(load.requests_per_second for load in found) for name, found in loads.items()}
    told = ", ".join(f"{name} {rate:,.0f}/s" for name, rate in rates.items())
    spent = {name: [1000 / load.requests_per_second for load in found] for name, found in loads.items()}
    tails = {name: [load.p99_ms for load in found] for name, found in loads.items()}
    cpu = {name: [load.cpu_ms for load in found] for name, found in loads.items()}
    return [
        # 1.2 times the requests are 1/1.2 of the time for each.
        Row(TIME, spent[OURS], spent[RIVAL], 1 / 1.2, "ms", told),
        Row(CPU, cpu[OURS], cpu[RIVAL], 1 / 1.2, "ms", f"floor: {RIVAL}"),
        Row(TAIL, tails[OURS], tails[RIVAL], 1, "ms", f"floor: {RIVAL}"),
        Row(ECHO, echoes[OURS], echoes[DIRECT], 2, "ms", "floor: no proxy"),
        Row(f"{ECHO} of {RIVAL}", echoes[RIVAL], echoes[DIRECT], None, "ms", "floor: no proxy"),
    ]


async def _wrk() -> str:
    found = shutil.which("wrk")
    if found is None and shutil.which("apt-get") and os.geteuid() == 0:
        install = await asyncio.create_subprocess_exec("apt-get", "install", "-qy", "wrk", stdout=DEVNULL)
        await install.wait()
        found = shutil.which("wrk")
    if found is None:
        raise Missing("wrk is not installed: apt-get install wrk")
    return found


async def _load(wrk: str, server: Server, path: str, seconds: int) -> Load:
    url = f"http://127.0.0.1:{server.port}{path}"
    before = _cpu_seconds(server.pid)
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
    spent = _cpu_seconds(server.pid) - before
    if "Non-2xx" in text:
        raise RuntimeError(f"{url} did not answer 200:\n{text}")
    rate, count = re.search(r"Requests/sec:\s+([\d.]+)", text), re.search(r"(\d+) requests in", text)
    if rate is None or count is None:
        raise RuntimeError(text)
    return Load(float(rate[1]), _milliseconds(text, "99%"), 1000 * spent / int(count[1]))


def _cpu_seconds(pid: int) -> float:
    """In user mode and in the kernel, of all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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
async def _ours(upstream: int, echo: int) -> AsyncIterator[Server]:
    """The real server with its database and Redis, which are needed for the first request only."""
    from starter.embedded.stack import Stack, StackConfig

    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="codehub-bench-") as data:
        Path(data).chmod(0o711)
        unused = "unused:"
        config = StackConfig(data=Path(data), s3_endpoint=unused, temporal_address=unused, docker_host=unused)
        async with Stack(config) as stack:
            arguments = (stack.env["DATABASE_URL"], stack.env["REDIS_URL"], str(upstream), str(echo))
            async with _part("serve", port, *arguments) as server:
                yield server


@asynccontextmanager
async def _part(name: str, port: int, *arguments: str) -> AsyncIterator[Server]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.proxy_parts", name, str(port), *arguments, cwd=Path(__file__).parents[1]
    )
    async with _ended(process):
        await _listening(port, process)
        yield Server(port, process.pid)


async def _rival_program() -> Path:
    binary = CACHE / "node_modules" / ".bin" / RIVAL
    if not binary.exists():
        npm = shutil.which("npm")
        if npm is None:
            raise Missing("npm is not installed: apt-get install npm")
        CACHE.mkdir(parents=True, exist_ok=True)
        install = await asyncio.create_subprocess_exec(
            npm, "install", "--no-audit", "--no-fund", "--silent", "--prefix", str(CACHE), f"{RIVAL}@{RIVAL_VERSION}"
        )
        if await install.wait():
            raise Missing(f"npm can't install {RIVAL}")
    return binary


@asynccontextmanager
async def _rival(binary: Path, target: int) -> AsyncIterator[Server]:
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
        yield Server(port, process.pid)


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
