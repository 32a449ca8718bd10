"""Transitions against what the engine itself needs: docker run, the first HTTP answer, docker stop.

Two floors: a plain `docker run`, which is on the engine's default network, and one with all that keeps a workspace in
(adapters.docker.spec), on the network that workspaces are on. The difference is what isolation costs on this engine;
`python -m bench.start` takes it apart.
"""

import asyncio
import functools
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar
from uuid import uuid4

import aiohttp
from docker.models.containers import Container

from adapters.docker.config import DockerConfig
from adapters.docker.runtime import DockerRuntime
from adapters.docker.spec import container_spec
from bench.idle import PARTS, by_part
from bench.installation import Installation
from bench.part import Part
from bench.row import Row
from bench.sizes import Sizes
from bench.usage import usage
from domain.model import OperationId, WorkspaceId

T = TypeVar("T")

START = "STANDBY → RUNNING"
CROWD = "created at once"
ISOLATED = "with the same isolation"
_SECONDS = 60.0
_OURS = 0


class Contestant(Protocol):
    async def cycle(self) -> tuple[float, float, float]:
        """Seconds for create, stop and start."""
        ...

    async def many(self, count: int) -> float:
        """So many created at once, until all of them have answered."""
        ...


@dataclass
class Samples:
    """Of ours, of the plain floor and of the isolated one."""

    of: list[list[float]] = field(default_factory=lambda: [[], [], []])

    def add(self, who: int, seconds: float) -> None:
        self.of[who].append(seconds)

    def rows(self, name: str, goal: float, floor: str, network: str) -> list[Row]:
        ours, plain, isolated = self.of
        return [
            Row(name, ours, plain, goal, note=floor),
            Row(f"{name}, {ISOLATED}", ours, isolated, note=f"{floor}, {ISOLATED}: on {network}"),
        ]


async def run(installation: Installation, part: Part, sizes: Sizes) -> None:
    create, stop, start, many = Samples(), Samples(), Samples(), Samples()
    network = network_of(installation)
    async with _isolated(installation) as isolated:
        contestants: Sequence[Contestant] = (Ours(installation), Floor(installation), isolated)
        for number in range(sizes.rounds + 1):
            for who in in_turn(number):
                times = await contestants[who].cycle()
                for samples, seconds in zip((create, stop, start), times, strict=True):
                    # The first one warms up.
                    if number:
                        samples.add(who, seconds)
        ours, plain, _ = stop.of
        part.add(
            *create.rows("create → first HTTP answer", 1.3, "volume create + docker run + first HTTP", network),
            Row("RUNNING → STANDBY", ours, plain, 1.5, note="docker stop + rm"),
            *start.rows(START, 1.3, "docker run + first HTTP", network),
        )
        spent: list[dict[str, float]] = []
        for number in range(sizes.crowds):
            for who in in_turn(number):
                before = _used(installation)
                many.add(who, await contestants[who].many(sizes.crowd))
                if who == _OURS:
                    after = _used(installation)
                    spent.append({name: (after[name] - before[name]) * 1000 / sizes.crowd for name in after})
    floor = f"{sizes.crowd} parallel docker run + first HTTP of each"
    part.add(
        *many.rows(f"{sizes.crowd} {CROWD}", 1.2, floor, network),
        Row(
            f"{sizes.crowd} {CROWD}: CPU of each",
            [sum(each.values()) for each in spent],
            unit="ms",
            note=f"{by_part({name: statistics.median(each[name] for each in spent) for name in spent[0]})};"
            " with its deletion",
        ),
    )


def _used(installation: Installation) -> dict[str, float]:
    """CPU seconds so far, by each part; the engine's own where it is one of these."""
    pids = {name: installation.stack.supervisor.pid(name) for name in (*PARTS, "dockerd")}
    return {name: of.cpu_seconds for name, of in usage({name: pid for name, pid in pids.items() if pid}).items()}


def in_turn(number: int) -> list[int]:
    """Whoever comes first may find the engine still busy with what was before: each does so equally often."""
    return [(number + place) % 3 for place in range(3)]


@dataclass(frozen=True)
class Ours:
    installation: Installation

    async def cycle(self) -> tuple[float, float, float]:
        """One life, timed as a person would."""
        began = time.monotonic()
        workspace = await self._answering()
        created = time.monotonic() - began
        stopped = await _timed(lambda: self._go(workspace, "STANDBY"))
        started = await _timed(lambda: self._started(workspace))
        await self.installation.delete(workspace)
        return created, stopped, started

    async def many(self, count: int) -> float:
        began = time.monotonic()
        workspaces = await asyncio.gather(*(self._answering() for _ in range(count)))
        taken = time.monotonic() - began
        await asyncio.gather(*(self.installation.delete(workspace) for workspace in workspaces))
        return taken

    async def _answering(self) -> str:
        """The first HTTP answer is the person's, as at the floor: that codehub has had one before is its own affair."""
        workspace = await self.installation.create()
        await self.installation.until(workspace, "RUNNING")
        await self._answered(workspace)
        return workspace

    async def _started(self, workspace: str) -> None:
        await self._go(workspace, "RUNNING")
        await self._answered(workspace)

    async def _answered(self, workspace: str) -> None:
        container = await asyncio.to_thread(self.installation.engine.containers.get, f"ws-{workspace}")
        await _first_answer(f"http://127.0.0.1:{_port(container)}/")

    async def _go(self, workspace: str, desired: str) -> None:
        await self.installation.want(workspace, desired)
        await self.installation.until(workspace, desired)


@dataclass(frozen=True)
class Floor:
    installation: Installation
    config: DockerConfig | None = None
    """With the isolation of that; without, plain."""

    async def cycle(self) -> tuple[float, float, float]:
        volume = self._volume()
        began = time.monotonic()
        await asyncio.to_thread(self.installation.engine.volumes.create, volume)
        container = await asyncio.to_thread(self._started, volume)
        await _first_answer(f"http://127.0.0.1:{_port(container)}/")
        created = time.monotonic() - began
        stopped = await _timed(lambda: asyncio.to_thread(_stop, container))
        again = time.monotonic()
        container = await asyncio.to_thread(self._started, volume)
        await _first_answer(f"http://127.0.0.1:{_port(container)}/")
        started = time.monotonic() - again
        await asyncio.to_thread(_stop, container)
        await asyncio.to_thread(lambda: self.installation.engine.volumes.get(volume).remove())
        return created, stopped, started

    async def many(self, count: int) -> float:
        volumes = [self._volume() for _ in range(count)]
        # A thread for each: asyncio's own pool has a few more than there are cores.
        with ThreadPoolExecutor(count) as pool:
            began = time.monotonic()
            containers = await asyncio.gather(*(self._answering(pool, volume) for volume in volumes))
            taken = time.monotonic() - began
            await asyncio.gather(*(_in(pool, functools.partial(one.remove, force=True)) for one in containers))
        for volume in volumes:
            await asyncio.to_thread(lambda name: self.installation.engine.volumes.get(name).remove(), volume)
        return taken

    async def _answering(self, pool: ThreadPoolExecutor, volume: str) -> Container:
        container = await _in(pool, lambda: self._started(volume))
        await _first_answer(f"http://127.0.0.1:{_port(container)}/")
        return container

    def _started(self, volume: str) -> Container:
        engine = self.installation.engine
        if self.config is None:
            # A host port of the engine's choice, which docker-py's types do not know.
            ports: Any = {"8080/tcp": ("127.0.0.1", None)}
            home = {volume: {"bind": "/home/coder", "mode": "rw"}}
            made: Container = engine.containers.run(self.installation.image, detach=True, ports=ports, volumes=home)
            made.reload()
            return made
        workspace = WorkspaceId(volume.removeprefix("ws-").removesuffix("-home"))
        spec = container_spec(self.config, workspace, self.installation.image, OperationId("floor"), init=True)
        created = engine.api.create_container_from_config(spec, f"floor-{workspace}")  # type: ignore[no-untyped-call]
        engine.api.start(created["Id"])
        return engine.containers.get(created["Id"])

    def _volume(self) -> str:
        return f"ws-{uuid4()}-home"


def network_of(installation: Installation) -> str:
    """That workspaces are on; where nobody says which, it is the one that `codehub up` would take (ADR 23)."""
    return "the engine's default network" if floor_config(installation).engines_network else "a network of their own"


def floor_config(installation: Installation) -> DockerConfig:
    """On the network that ours are on."""
    return DockerConfig(
        "floor",
        docker_host=installation.env["DOCKER_HOST"],
        engines_network=installation.env.get("WORKSPACE_NETWORK") == "engine",
    )


@asynccontextmanager
async def _isolated(installation: Installation) -> AsyncIterator[Floor]:
    runtime = DockerRuntime(floor_config(installation))
    await runtime.ensure_network()
    try:
        yield Floor(installation, runtime.config)
    finally:
        await runtime.remove_network()
        await runtime.close()


async def _in(pool: ThreadPoolExecutor, call: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(pool, call)


def _port(container: Container) -> str:
    published = container.ports["8080/tcp"]
    return published[0]["HostPort"] if published else "0"


def _stop(container: Container) -> None:
    container.stop(timeout=5)
    container.remove()


async def _first_answer(url: str) -> None:
    async with asyncio.timeout(_SECONDS), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(url) as answer:
                    await answer.read()
                    return
            except aiohttp.ClientError:
                await asyncio.sleep(0.005)


async def _timed(work: Callable[[], Awaitable[None]]) -> float:
    began = time.monotonic()
    await work()
    return time.monotonic() - began
