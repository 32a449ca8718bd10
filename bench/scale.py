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

TRANSITION = "no-op transition, p50, {size:,} workspaces"
_SWEEPS = 20
_LISTINGS = 3
_DRIFTED = 3


async def run(simulation: Simulation, part: Part, sizes: Sizes) -> None:
    sleep = idle.Idle(part, sizes)
    async with fleet(simulation) as workspaces:
        for size in sizes.fleet:
            print(f"  {size:,} workspaces", flush=True)
            before, last = workspaces.size, size == sizes.fleet[-1]
            taken = await workspaces.grow(size)
            part.growth.add("making a workspace", size, taken * 1000 / (size - before), each=True)
            await _transitions(workspaces, part, sizes)
            await sleep.measure(workspaces, last=last)
            await wakes.measure(workspaces, part, sizes, last=last)
            await _sweep(workspaces, part, last=last)
            await _census(workspaces, part, last=last)
            await storm.measure(workspaces, part, sizes.at_once, last=last)
            if not last and not workspaces.reserved:
                # Those that come next push them out of the worker's cache.
                await wakes.lengthen(workspaces, sizes.long_histories)


async def _transitions(workspaces: Fleet, part: Part, sizes: Sizes) -> None:
    """One after another. Of the fewest and of the most there are rows."""
    workspace = (await workspaces.at_rest(DesiredState.RUNNING, 1))[0]
    turns = itertools.cycle((DesiredState.STANDBY, DesiredState.RUNNING))
    taken = [await workspaces.go(workspace, next(turns)) * 1000 for _ in range(sizes.transitions)]
    part.growth.add("no-op transition, p50", workspaces.size, statistics.median(taken), each=True)
    if workspaces.size in {sizes.fleet[0], sizes.fleet[-1]}:
        name = TRANSITION.format(size=workspaces.size)
        part.add(Row(name, taken, goal=40, unit="ms", note="engine in memory"))


async def _sweep(workspaces: Fleet, part: Part, *, last: bool) -> None:
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
    if last:
        running = await workspaces.database.fetchval("SELECT count(*) FROM workspaces WHERE phase = 'RUNNING'")
        note = f"{running:,} containers, simulated; {len(drifted)} drifted, {len(woken_now)} signals"
        part.add(Row(f"observer sweep over {workspaces.size:,} rows", taken, goal=300, unit="ms", note=note))


async def _census(workspaces: Fleet, part: Part, *, last: bool) -> None:
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
    if last:
        part.add(Row(f"census of {workspaces.size:,}: every workflow listed", taken, unit="ms"))
