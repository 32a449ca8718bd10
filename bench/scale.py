"""What codehub itself costs: a transition with nothing to do, and workspaces that sleep, at 100, 1,000 and 10,000."""

import itertools
import statistics
import time

from adapters.postgres.attention import Attention
from bench import idle, storm, wakes
from bench.fleet import Fleet, fleet
from bench.installation import Simulation
from bench.memory_worker import remembered
from bench.part import Part
from bench.row import Row
from bench.sizes import Sizes
from coordinator.census import Census
from coordinator.observer import Observer
from domain.model import DesiredState
from domain.naming import DEFAULT_NODE
from workflows.client import Waker

MAKING = "making a workspace"
TRANSITION = "no-op transition, p50, {size:,} workspaces"
_SWEEPS = 20
_LISTINGS = 3
_DRIFTED = 3


async def run(simulation: Simulation, part: Part, sizes: Sizes) -> None:
    async with fleet(simulation) as workspaces:
        await _begin(workspaces, part, sizes)
        await _transitions(workspaces, part, sizes, rows=True)
        # Those that come next push them out of the worker's cache.
        await wakes.lengthen(workspaces, sizes.long_histories)
        await _grow(workspaces, part, sizes, sizes.fleet)
        await _measure(workspaces, part, sizes, sizes.idle_seconds, rows=True)


async def smaller(simulation: Simulation, part: Part, sizes: Sizes) -> None:
    """The same of fewer, for the curves."""
    async with fleet(simulation) as workspaces:
        await _begin(workspaces, part, sizes)
        for size in (sizes.first, *sizes.smaller_fleets):
            await _grow(workspaces, part, sizes, size)
            await _measure(workspaces, part, sizes, sizes.smaller_idle_seconds, rows=False)


async def _begin(workspaces: Fleet, part: Part, sizes: Sizes) -> None:
    taken = await workspaces.make(sizes.first)
    part.growth.add(MAKING, workspaces.size, taken * 1000 / sizes.first, each=True)


async def _grow(workspaces: Fleet, part: Part, sizes: Sizes, size: int) -> None:
    """Most of them are copies, which take less time; the last ones are made beside them as people do."""
    print(f"  {size:,} workspaces", flush=True)
    copies = size - workspaces.size - sizes.first
    if copies <= 0:
        return
    supervisor = workspaces.simulation.stack.supervisor
    await supervisor.pause("worker")
    new = await workspaces.copy(copies)
    await supervisor.resume("worker")
    await workspaces.put_to_sleep(new)
    await _begin(workspaces, part, sizes)


async def _measure(workspaces: Fleet, part: Part, sizes: Sizes, idle_seconds: float, *, rows: bool) -> None:
    await _transitions(workspaces, part, sizes, rows=rows)
    await idle.measure(workspaces, part, sizes, idle_seconds, rows=rows)
    await wakes.measure(workspaces, part, sizes, rows=rows)
    await _sweep(workspaces, part, rows=rows)
    await _census(workspaces, part, rows=rows)
    await storm.measure(workspaces, part, sizes, rows=rows)


async def _transitions(workspaces: Fleet, part: Part, sizes: Sizes, *, rows: bool) -> None:
    """One after another."""
    workspace = (await workspaces.at_rest(DesiredState.RUNNING, 1))[0]
    turns = itertools.cycle((DesiredState.STANDBY, DesiredState.RUNNING))
    taken = [await workspaces.go(workspace, next(turns)) * 1000 for _ in range(sizes.transitions)]
    part.growth.add("no-op transition, p50", workspaces.size, statistics.median(taken), each=True)
    if rows:
        name = TRANSITION.format(size=workspaces.size)
        part.add(Row(name, taken, goal=40, unit="ms", note="engine in memory"))


async def _sweep(workspaces: Fleet, part: Part, *, rows: bool) -> None:
    """An observer beside the real one, on an engine that holds what the rows say, save three."""
    runtime = await remembered(workspaces.database, DEFAULT_NODE)
    observer = Observer(DEFAULT_NODE, Attention(workspaces.database), runtime, Waker(workspaces.client))
    taken: list[float] = []
    for _ in range(_SWEEPS):
        began = time.monotonic()
        woken = await observer.sweep()
        taken.append((time.monotonic() - began) * 1000)
        if woken:
            raise RuntimeError(f"nothing drifted, and {len(woken)} were woken")
    drifted = set(await workspaces.at_rest(DesiredState.RUNNING, _DRIFTED))
    for workspace in drifted:
        runtime.drop_container(workspace)
    if (woken_now := set(await observer.sweep())) != drifted:
        raise RuntimeError(f"{len(drifted)} drifted, and {len(woken_now)} were woken")
    workspaces.used(drifted)
    part.growth.add("observer sweep", workspaces.size, statistics.median(taken))
    if rows:
        running = await workspaces.database.fetchval("SELECT count(*) FROM workspaces WHERE phase = 'RUNNING'")
        note = f"{running:,} containers, simulated; {len(drifted)} drifted, {len(woken_now)} signals"
        part.add(Row(f"observer sweep over {workspaces.size:,} rows", taken, goal=300, unit="ms", note=note))


async def _census(workspaces: Fleet, part: Part, *, rows: bool) -> None:
    """Each workflow listed, as the census does where the counts differ. That they are counted once a minute is in what
    idle workspaces cost."""
    census = Census(Attention(workspaces.database), workspaces.client, workspaces.waker)
    taken: list[float] = []
    for _ in range(_LISTINGS):
        began = time.monotonic()
        missing = await census.heal()
        taken.append((time.monotonic() - began) * 1000)
        if missing:
            raise RuntimeError(f"every workflow runs, and {len(missing)} were missed")
    part.growth.add("census: every workflow listed", workspaces.size, statistics.median(taken))
    if rows:
        part.add(Row(f"census of {workspaces.size:,}: every workflow listed", taken, unit="ms"))
