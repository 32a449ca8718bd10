"""What codehub itself costs: a transition with nothing to do, and workspaces that sleep, at 100, 1,000 and 10,000."""

import asyncio
import itertools
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from adapters.postgres.attention import Attention
from bench.fleet import Fleet, fleet
from bench.growth import Growth
from bench.installation import Simulation
from bench.memory_worker import remembered
from bench.row import Row
from bench.usage import Usage, usage
from coordinator.observer import Observer
from domain.model import DesiredState
from settings import Settings
from workflows.client import Waker

SIZES = (100, 1_000, 10_000)
PARTS = ("temporal", "worker", "api", "postgres", "valkey")
_TRANSITIONS = 60
_AT_ONCE = 500
_WAKES = 200
_SWEEPS = 20
_IDLE_SECONDS = 45.0
_QUIET_SECONDS = 10.0
_LOOKS = 500
_LOOKING_SECONDS = 20.0
_LOOK_INTERVAL = Settings.model_fields["coordinator_safety_interval"].default
_MB = 1024 * 1024


async def run(simulation: Simulation, growth: Growth) -> list[Row]:
    rows: list[Row] = []
    async with fleet(simulation) as workspaces:
        for size in SIZES:
            print(f"  {size:,} workspaces")
            before = len(workspaces.ids)
            taken = await workspaces.grow(size)
            growth.add("making workspaces, per second", size, (size - before) / taken)
            last = size == SIZES[-1]
            if size == SIZES[0]:
                rows += await _transitions(workspaces)
            rows += await _idle(workspaces, growth, last=last)
            rows += await _wakes(workspaces, growth, last=last)
            rows += await _sweep(workspaces, growth, last=last)
        rows += await _storm(workspaces)
    return rows


async def _transitions(workspaces: Fleet) -> list[Row]:
    """One after another for their time; then all at once for the rate."""
    workspace = workspaces.ids[0]
    turns = itertools.cycle((DesiredState.STANDBY, DesiredState.RUNNING))
    taken = [await workspaces.go(workspace, next(turns)) * 1000 for _ in range(_TRANSITIONS)]
    return [Row("no-op transition, p50", taken, goal=40, unit="ms", note="engine in memory")]


async def _storm(workspaces: Fleet) -> list[Row]:
    """Five hundred woken at once: nothing stalls, also right after the worker was killed and has no cache."""
    warm = [await _all_at_once(workspaces, goal) for goal in (DesiredState.RUNNING, DesiredState.STANDBY)]
    supervisor = workspaces.simulation.stack.supervisor
    await supervisor.pause("worker")
    await supervisor.resume("worker")
    cold = await _all_at_once(workspaces, DesiredState.RUNNING)
    name = f"no-op transitions, {_AT_ONCE} at once"
    return [
        Row(name, warm, goal=60, unit="/s", note="engine in memory", at_least=True),
        Row(f"{name}, after a worker restart", [cold], unit="/s", note="none in its cache", at_least=True),
    ]


async def _all_at_once(workspaces: Fleet, goal: DesiredState) -> float:
    origin = DesiredState.STANDBY if goal is DesiredState.RUNNING else DesiredState.RUNNING
    moving = await workspaces.at_rest(origin, _AT_ONCE)
    began = time.monotonic()
    await workspaces.database.execute(
        "UPDATE workspaces SET desired_state = $2 WHERE id = ANY($1::uuid[])", moving, goal
    )
    await workspaces.waker.wake_all(moving)
    await workspaces.settle()
    return len(moving) / (time.monotonic() - began)


@dataclass(frozen=True)
class _Spell:
    """What a while cost."""

    seconds: float
    cpu: dict[str, float]
    """Seconds of each part."""
    memory: dict[str, float]
    """MB of each part, at its end."""
    stored: float
    """MB in the databases, at its end."""
    grown: float
    """MB."""

    @property
    def cores(self) -> dict[str, float]:
        """Percent of a core."""
        return {name: seconds / self.seconds * 100 for name, seconds in self.cpu.items()}


async def _spell(workspaces: Fleet, seconds: float) -> _Spell:
    stored, used, began = await _stored(workspaces), _used(workspaces), time.monotonic()
    await asyncio.sleep(seconds)
    passed, after, stored_after = time.monotonic() - began, _used(workspaces), await _stored(workspaces)
    return _Spell(
        passed,
        {name: after[name].cpu_seconds - used[name].cpu_seconds for name in PARTS},
        {name: after[name].memory_bytes / _MB for name in PARTS},
        stored_after / _MB,
        (stored_after - stored) / _MB,
    )


async def _idle(workspaces: Fleet, growth: Growth, *, last: bool) -> list[Row]:
    """Nobody does anything. The while that is measured has sweeps and TTL ticks in it, but is too short for the look
    that each workflow takes by its own timer: what such a look costs is measured apart, and added.
    """
    await asyncio.sleep(_QUIET_SECONDS)
    idle = await _spell(workspaces, _IDLE_SECONDS)
    size = len(workspaces.ids)
    sleeping = await workspaces.at_rest(DesiredState.STANDBY, min(_LOOKS, size))
    looking = asyncio.create_task(_spell(workspaces, _LOOKING_SECONDS))
    await workspaces.waker.wake_all(sleeping)
    looked = await looking
    rest = sum(idle.cores.values())
    # Seconds of CPU for one look, without what is spent anyway; a percent of a core is a hundredth of a second.
    look = (sum(looked.cpu.values()) - rest / 100 * looked.seconds) / len(sleeping)
    looks = look * 100 * size / _LOOK_INTERVAL
    growth.add("idle: CPU, % of a core", size, rest + looks)
    growth.add("idle: memory, MB", size, sum(idle.memory.values()))
    growth.add("idle: databases, MB", size, idle.stored)
    if not last:
        return []
    of_it = f"{_by_part(idle.cores)}, and {looks:.1f} for the look that each takes once an hour"
    history = (looked.grown - idle.grown / idle.seconds * looked.seconds) * 1024 / len(sleeping)
    return [
        Row(f"{size:,} idle: CPU", [rest + looks], goal=5, unit="% of a core", note=of_it),
        Row(
            f"{size:,} idle: growth of the databases",
            [idle.grown],
            goal=0.1,
            unit="MB",
            note=f"in {idle.seconds:.0f} s",
        ),
        Row("one look with nothing to do: CPU", [look * 1000], unit="ms", note=f"of {len(sleeping)} at once"),
        Row("one look with nothing to do: databases", [history], unit="KB", note="kept until continue-as-new"),
        Row(f"{size:,} idle: memory", [sum(idle.memory.values())], unit="MB", note=_by_part(idle.memory)),
        Row(f"{size:,} idle: databases", [idle.stored], unit="MB", note="PostgreSQL and Temporal's SQLite"),
    ]


async def _wakes(workspaces: Fleet, growth: Growth, *, last: bool) -> list[Row]:
    sleeping = await workspaces.at_rest(DesiredState.STANDBY, min(_WAKES, len(workspaces.ids) // 2))
    taken = [await workspaces.wake_latency(workspace, DesiredState.RUNNING) * 1000 for workspace in sleeping]
    p99 = statistics.quantiles(taken, n=100)[98]
    growth.add("wake: p50, ms", len(workspaces.ids), statistics.median(taken))
    for workspace in sleeping:
        await workspaces.go(workspace, DesiredState.STANDBY)
    if not last:
        return []
    note = f"p50 {statistics.median(taken):.0f} ms; desired_state set → operation begun, {len(taken)} wakes"
    return [Row(f"wake with {len(workspaces.ids):,} idle, p99", [p99], goal=300, unit="ms", note=note)]


async def _sweep(workspaces: Fleet, growth: Growth, *, last: bool) -> list[Row]:
    """An observer beside the real one, on an engine that holds what the rows say, save three."""
    runtime = await remembered(workspaces.database)
    observer = Observer("local", Attention(workspaces.database), runtime, Waker(workspaces.client))
    taken: list[float] = []
    for _ in range(_SWEEPS):
        began = time.monotonic()
        woken = await observer.sweep()
        taken.append((time.monotonic() - began) * 1000)
        if woken:
            raise RuntimeError(f"nothing drifted, and {len(woken)} were woken")
    drifted = set(await workspaces.at_rest(DesiredState.RUNNING, 3))
    for workspace in drifted:
        runtime.drop_container(workspace)
    if (woken_now := set(await observer.sweep())) != drifted:
        raise RuntimeError(f"{len(drifted)} drifted, and {len(woken_now)} were woken")
    growth.add("observer sweep, ms", len(workspaces.ids), statistics.median(taken))
    if not last:
        return []
    running = await workspaces.database.fetchval("SELECT count(*) FROM workspaces WHERE phase = 'RUNNING'")
    note = f"{running:,} containers, simulated; {len(drifted)} drifted, {len(woken_now)} signals"
    return [Row(f"observer sweep over {len(workspaces.ids):,} rows", taken, goal=300, unit="ms", note=note)]


def _used(workspaces: Fleet) -> dict[str, Usage]:
    pids = {name: workspaces.simulation.stack.supervisor.pid(name) for name in PARTS}
    return usage({name: pid for name, pid in pids.items() if pid is not None})


async def _stored(workspaces: Fleet) -> int:
    """Bytes of both databases: PostgreSQL's own count, and Temporal's file with its log."""
    data: Path = workspaces.simulation.stack.data
    ours: int = await workspaces.database.fetchval("SELECT pg_database_size(current_database())")
    return ours + sum(file.stat().st_size for file in data.rglob("temporal*.db*"))


def _by_part(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.1f}" if value < 10 else f"{name} {value:.0f}" for name, value in values.items())
