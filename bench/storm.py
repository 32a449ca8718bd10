"""Many woken at once: how many a second, and how long the last of them waits. Nothing stalls, also where the worker was
killed at that moment and the next one has none of them in its cache."""

import os
import signal

from bench.fleet import Fleet
from bench.part import Part
from bench.row import Row
from domain.model import DesiredState

LONGEST_SECONDS = 30.0
"""That one of five hundred may wait. A worker that begins too many replays at once runs into the ten seconds of a
workflow task again and again, and takes minutes."""
RATE = "no-op transitions, {count} at once"


async def measure(fleet: Fleet, part: Part, count: int, *, last: bool) -> None:
    moving = await fleet.at_rest(DesiredState.STANDBY, count)
    if len(moving) < count:
        return
    waits = [await fleet.all_at_once(moving, desired) for desired in (DesiredState.RUNNING, DesiredState.STANDBY)]
    rates = [count / max(taken) for taken in waits]
    part.growth.add(f"transition, {count} at once", fleet.size, 1000 / (sum(rates) / len(rates)), each=True)
    if not last:
        return
    name = RATE.format(count=count)
    part.add(
        Row(name, rates, goal=60, unit="/s", note="engine in memory", at_least=True),
        Row(f"{name}: longest wait", [max(taken) for taken in waits], goal=LONGEST_SECONDS),
    )
    again = await fleet.at_rest(DesiredState.STANDBY, count)
    _kill(fleet)
    cold = await fleet.all_at_once(again, DesiredState.RUNNING)
    await fleet.all_at_once(again, DesiredState.STANDBY)
    note = "kill -9 of the only worker, then all are woken; it is started again by itself"
    part.add(
        Row(f"{name}, the worker killed: longest wait", [max(cold)], goal=LONGEST_SECONDS, note=note),
        Row(f"{name}, the worker killed", [count / max(cold)], unit="/s", note="its start included", at_least=True),
    )


def _kill(fleet: Fleet) -> None:
    pid = fleet.simulation.stack.supervisor.pid("worker")
    if pid is None:
        raise RuntimeError("there is no worker to kill")
    os.kill(pid, signal.SIGKILL)
