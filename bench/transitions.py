"""Transitions against what the engine itself needs: docker run, the first HTTP answer, docker stop."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from docker.models.containers import Container

from bench.installation import Installation
from bench.row import Row

ROUNDS = 7
AT_ONCE = 20


@dataclass
class Samples:
    ours: list[float] = field(default_factory=list)
    floor: list[float] = field(default_factory=list)


async def run(installation: Installation) -> list[Row]:
    create, stop, start = Samples(), Samples(), Samples()
    await _cycle(installation)
    await _floor_cycle(installation)
    for _ in range(ROUNDS):
        ours, floors = await _cycle(installation), await _floor_cycle(installation)
        for samples, taken, floor in zip((create, stop, start), ours, floors, strict=True):
            samples.ours.append(taken)
            samples.floor.append(floor)
    many, many_floor = await _many(installation), await _many_floor(installation)
    return [
        Row(
            "create → first HTTP answer", create.ours, create.floor, 1.3, note="volume create + docker run + first HTTP"
        ),
        Row("RUNNING → STANDBY", stop.ours, stop.floor, 1.5, note="docker stop + rm"),
        Row("STANDBY → RUNNING", start.ours, start.floor, 1.3, note="docker run + first HTTP"),
        Row(f"{AT_ONCE} created at once", [many], [many_floor], 1.2, note=f"{AT_ONCE} parallel docker run"),
    ]


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


async def _floor_cycle(installation: Installation) -> tuple[float, float, float]:
    name = f"floor-{time.monotonic_ns()}"
    began = time.monotonic()
    await asyncio.to_thread(installation.engine.volumes.create, name)
    container = await _docker_run(installation, name)
    created = time.monotonic() - began
    stopped = await _timed(lambda: asyncio.to_thread(_stop, container))
    again = time.monotonic()
    container = await _docker_run(installation, name)
    started = time.monotonic() - again
    await asyncio.to_thread(_stop, container)
    await asyncio.to_thread(lambda: installation.engine.volumes.get(name).remove())
    return created, stopped, started


async def _docker_run(installation: Installation, volume: str) -> Container:
    def run_container() -> Container:
        # A host port of the engine's choice, which docker-py's types do not know.
        ports: Any = {"8080/tcp": ("127.0.0.1", None)}
        made: Container = installation.engine.containers.run(
            installation.image,
            detach=True,
            ports=ports,
            volumes={volume: {"bind": "/home/coder", "mode": "rw"}},
        )
        made.reload()
        return made

    container = await asyncio.to_thread(run_container)
    await _first_answer(f"http://127.0.0.1:{_port(container)}/")
    return container


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


async def _many(installation: Installation) -> float:
    began = time.monotonic()
    workspaces = await asyncio.gather(*(installation.create() for _ in range(AT_ONCE)))
    await asyncio.gather(*(installation.until(workspace, "RUNNING") for workspace in workspaces))
    taken = time.monotonic() - began
    await asyncio.gather(*(installation.delete(workspace) for workspace in workspaces))
    return taken


async def _many_floor(installation: Installation) -> float:
    names = [f"floor-{number}-{time.monotonic_ns()}" for number in range(AT_ONCE)]
    began = time.monotonic()
    containers = await asyncio.gather(*(_docker_run(installation, name) for name in names))
    taken = time.monotonic() - began
    await asyncio.gather(*(asyncio.to_thread(container.remove, force=True) for container in containers))
    for name in names:
        await asyncio.to_thread(lambda volume: installation.engine.volumes.get(volume).remove(), name)
    return taken


async def _timed(work: Callable[[], Awaitable[None]]) -> float:
    began = time.monotonic()
    await work()
    return time.monotonic() - began
