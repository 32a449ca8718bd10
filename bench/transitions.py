"""Transitions against what the engine itself needs: docker run, the first HTTP answer, docker stop.

Two floors: a plain `docker run`, and one with all that keeps a workspace in (adapters.docker.spec). The difference is
what isolation costs on this engine; `python -m bench.start` takes it apart.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import aiohttp
from docker.models.containers import Container

from adapters.docker.config import DockerConfig
from adapters.docker.runtime import DockerRuntime
from adapters.docker.spec import container_spec
from bench.installation import Installation
from bench.row import Row
from domain.model import OperationId, WorkspaceId

ROUNDS = 7
AT_ONCE = 20
ISOLATED = "with the same isolation"


@dataclass
class Samples:
    ours: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    isolated: list[float] = field(default_factory=list)

    def rows(self, name: str, goal: float, floor: str) -> list[Row]:
        return [
            Row(name, self.ours, self.plain, goal, note=floor),
            Row(f"{name}, {ISOLATED}", self.ours, self.isolated, note=f"{floor}, {ISOLATED}"),
        ]


async def run(installation: Installation) -> list[Row]:
    create, stop, start, many = Samples(), Samples(), Samples(), Samples()
    async with _isolated(installation) as isolated:
        plain = Floor(installation)
        for warm in (False, *[True] * ROUNDS):
            lives = [await _cycle(installation), await plain.cycle(), await isolated.cycle()]
            for samples, times in zip((create, stop, start), zip(*lives, strict=True), strict=True):
                if warm:
                    _add(samples, *times)
        for _ in range(2):
            _add(many, await _many(installation), await plain.many(), await isolated.many())
    return [
        *create.rows("create → first HTTP answer", 1.3, "volume create + docker run + first HTTP"),
        Row("RUNNING → STANDBY", stop.ours, stop.plain, 1.5, note="docker stop + rm"),
        *start.rows("STANDBY → RUNNING", 1.3, "docker run + first HTTP"),
        *many.rows(f"{AT_ONCE} created at once", 1.2, f"{AT_ONCE} parallel docker run"),
    ]


def _add(samples: Samples, ours: float, plain: float, isolated: float) -> None:
    samples.ours.append(ours)
    samples.plain.append(plain)
    samples.isolated.append(isolated)


async def _cycle(installation: Installation) -> tuple[float, float, float]:
    """One life, timed as a person would: create, stop, start."""
    began = time.monotonic()
    workspace = await installation.create()
    found = await installation.until(workspace, "RUNNING")
    await _answers(installation, str(found["id"]))
    created = time.monotonic() - began
    stopped = await _timed(lambda: _go(installation, workspace, "STANDBY"))
    started = await _timed(lambda: _go(installation, workspace, "RUNNING"))
    await installation.delete(workspace)
    return created, stopped, started


async def _go(installation: Installation, workspace: str, desired: str) -> None:
    await installation.want(workspace, desired)
    await installation.until(workspace, desired)


async def _many(installation: Installation) -> float:
    began = time.monotonic()
    workspaces = await asyncio.gather(*(installation.create() for _ in range(AT_ONCE)))
    await asyncio.gather(*(installation.until(workspace, "RUNNING") for workspace in workspaces))
    taken = time.monotonic() - began
    await asyncio.gather(*(installation.delete(workspace) for workspace in workspaces))
    return taken


@dataclass(frozen=True)
class Floor:
    installation: Installation
    config: DockerConfig | None = None
    """With the isolation of that; without, plain."""

    async def cycle(self) -> tuple[float, float, float]:
        volume = self._volume()
        began = time.monotonic()
        await asyncio.to_thread(self.installation.engine.volumes.create, volume)
        container = await self._run(volume)
        created = time.monotonic() - began
        stopped = await _timed(lambda: asyncio.to_thread(_stop, container))
        again = time.monotonic()
        container = await self._run(volume)
        started = time.monotonic() - again
        await asyncio.to_thread(_stop, container)
        await asyncio.to_thread(lambda: self.installation.engine.volumes.get(volume).remove())
        return created, stopped, started

    async def many(self) -> float:
        volumes = [self._volume() for _ in range(AT_ONCE)]
        began = time.monotonic()
        containers = await asyncio.gather(*(self._run(volume) for volume in volumes))
        taken = time.monotonic() - began
        await asyncio.gather(*(asyncio.to_thread(container.remove, force=True) for container in containers))
        for volume in volumes:
            await asyncio.to_thread(lambda name: self.installation.engine.volumes.get(name).remove(), volume)
        return taken

    async def _run(self, volume: str) -> Container:
        container = await asyncio.to_thread(self._started, volume)
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


@asynccontextmanager
async def _isolated(installation: Installation) -> AsyncIterator[Floor]:
    runtime = DockerRuntime(DockerConfig("floor", docker_host=installation.env["DOCKER_HOST"]))
    await runtime.ensure_network()
    try:
        yield Floor(installation, runtime.config)
    finally:
        await runtime.remove_network()
        await runtime.close()


def _port(container: Container) -> str:
    published = container.ports["8080/tcp"]
    return published[0]["HostPort"] if published else "0"


def _stop(container: Container) -> None:
    container.stop(timeout=5)
    container.remove()


async def _answers(installation: Installation, workspace: str) -> None:
    container = await asyncio.to_thread(installation.engine.containers.get, f"ws-{workspace}")
    await _first_answer(f"http://127.0.0.1:{_port(container)}/")


async def _first_answer(url: str) -> None:
    async with aiohttp.ClientSession() as session:
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
