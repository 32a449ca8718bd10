"""Many woken at once: how many a second, and how long the last of them waits. Nothing stalls, also where the worker was
killed at that moment and the next one has none of them in its cache."""

import os
import signal
import statistics

from bench.fleet import Fleet
from bench.idle import PARTS, by_part, used
from bench.part import Part
from bench.row import Row
from bench.sizes import Sizes
from domain.model import DesiredState

LONGEST_SECONDS = 30.0
"""That one of five hundred may wait. A worker that begins too many replays at once runs into the ten seconds of a
workflow task again and again, and takes minutes."""
RATE = "no-op transitions, {count} at once"


async def measure(fleet: Fleet, part: Part, sizes: Sizes, *, rows: bool) -> None:
    """A few at each size; with `rows` as many as should not stall."""
    _, rates, _ = await _there_and_back(fleet, sizes.few_at_once)
    part.growth.add(f"transition, {sizes.few_at_once} at once", fleet.size, 1000 / statistics.mean(rates), each=True)
    if not rows:
        return
    count = sizes.at_once
    waits, rates, cpu = await _there_and_back(fleet, count)
    name = RATE.format(count=count)
    part.add(
        Row(name, rates, goal=60, unit="/s", note="engine in memory", at_least=True),
        Row(f"{name}: CPU of each", [sum(cpu.values())], unit="ms", note=by_part(cpu)),
        Row(f"{name}: longest wait", waits, goal=LONGEST_SECONDS),
    )
    moving = await fleet.at_rest(DesiredState.STANDBY, count)
    _kill(fleet)
    killed = max(await fleet.all_at_once(moving, DesiredState.RUNNING))
    note = "kill -9 of the only worker, then all are woken; its start is in it"
    part.add(Row(f"{name}, the worker killed: longest wait", [killed], goal=LONGEST_SECONDS, note=note))


async def _there_and_back(fleet: Fleet, count: int) -> tuple[list[float], list[float], dict[str, float]]:
    """The longest waits, how many went a second, and the milliseconds of CPU that each part took for one."""
    moving = await fleet.at_rest(DesiredState.STANDBY, count)
    before = used(fleet)
    waits = [max(await fleet.all_at_once(moving, desired)) for desired in (DesiredState.RUNNING, DesiredState.STANDBY)]
    after, both = used(fleet), 2 * len(moving)
    cpu = {name: (after[name].cpu_seconds - before[name].cpu_seconds) * 1000 / both for name in PARTS}
    return waits, [len(moving) / wait for wait in waits], cpu


def _kill(fleet: Fleet) -> None:
    pid = fleet.simulation.stack.supervisor.pid("worker")
    if pid is None:
        raise RuntimeError("there is no worker to kill")
    os.kill(pid, signal.SIGKILL)
