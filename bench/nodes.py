"""A node with many homes that is gone, and comes back: how soon each of its workspaces says so, how soon each is as it
was, and what those of another node notice."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from adapters.postgres.database import Database
from bench.fleet import RUNNING_SHARE, Fleet, fleet
from bench.installation import Simulation
from bench.part import Part
from bench.row import Row, figure, quantile
from bench.sizes import Sizes
from domain.model import DesiredState, WorkspaceId
from domain.naming import DEFAULT_NODE

NODE = "b"
WORKER = f"worker-{NODE}"
LOST_SECONDS = HEALED_SECONDS = 30.0
_PATIENCE = 180.0
_PAUSE = 0.05

_REACHABLE = """
SELECT count(*) FROM workspaces WHERE node = $1 AND NOT (phase = 'ERROR' AND error_reason = 'Unreachable')
"""
_NOT_HEALED = """
SELECT count(*) FROM workspaces WHERE node = $1 AND (operation <> 'NONE' OR phase <> desired_state)
"""
_UNREGISTERED = "SELECT 1 - count(*) FROM nodes WHERE name = $1"


async def run(simulation: Simulation, part: Part, sizes: Sizes) -> None:
    await _lost_and_healed(simulation, part, sizes.lost, rows=True)


async def smaller(simulation: Simulation, part: Part, sizes: Sizes) -> None:
    """The same with fewer homes, for the curves."""
    await _lost_and_healed(simulation, part, sizes.fewer_lost, rows=False)


async def _lost_and_healed(simulation: Simulation, part: Part, size: int, *, rows: bool) -> None:
    async with fleet(simulation) as workspaces:
        await workspaces.make(RUNNING_SHARE, DEFAULT_NODE)
        bystander = (await workspaces.at_rest(DesiredState.RUNNING, 1))[0]
        homes = await workspaces.copy(size, NODE)
        await simulation.add_node(NODE)
        await _until(workspaces.database, _UNREGISTERED, NODE)
        await workspaces.put_to_sleep(homes)
        async with _used(workspaces, bystander) as used:
            began = time.monotonic()
            await _kill(simulation)
            lost = await _until(workspaces.database, _REACHABLE, NODE) - began
            again = time.monotonic()
            await simulation.stack.supervisor.resume(WORKER)
            healed = await _until(workspaces.database, _NOT_HEALED, NODE) - again
    part.growth.add("node gone → all of its homes Unreachable", size, lost, "s")
    part.growth.add("node back → all of its homes healed", size, healed, "s")
    if rows:
        note = f"p50 {figure(quantile(used, 50))} ms of {len(used)}; no-op, while the node is lost and heals"
        part.add(
            Row(f"node gone → its {size:,} homes Unreachable", [lost], goal=LOST_SECONDS, note="kill -9 of its worker"),
            Row(f"node back → its {size:,} homes healed", [healed], goal=HEALED_SECONDS, note="its start is in it"),
            Row("transition on another node meanwhile, p99", [quantile(used, 99)], unit="ms", note=note),
        )


async def _kill(simulation: Simulation) -> None:
    """And keep it from being started again."""
    supervisor = simulation.stack.supervisor
    pid = supervisor.pid(WORKER)
    if pid is None:
        raise RuntimeError(f"there is no {WORKER} to kill")
    os.kill(pid, signal.SIGKILL)
    await supervisor.pause(WORKER)


@asynccontextmanager
async def _used(workspaces: Fleet, bystander: WorkspaceId) -> AsyncIterator[list[float]]:
    """It is stopped and started again and again; what each transition took, in ms."""
    taken: list[float] = []
    over = asyncio.Event()

    async def use() -> None:
        while not over.is_set():
            taken.append(await workspaces.go(bystander, DesiredState.STANDBY) * 1000)
            taken.append(await workspaces.go(bystander, DesiredState.RUNNING) * 1000)
            await asyncio.sleep(_PAUSE)

    using = asyncio.create_task(use())
    try:
        yield taken
    finally:
        over.set()
        await using


async def _until(database: Database, left: str, argument: object) -> float:
    """When nothing is left of it."""
    deadline = time.monotonic() + _PATIENCE
    while count := await database.fetchval(left, argument):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{count} are left after {_PATIENCE:.0f} s: {left.strip()}")
        await asyncio.sleep(0.1)
    return time.monotonic()
