"""Many woken at once: how many a second, and how long the last of them waits. Nothing stalls, also where the worker was
killed at that moment and the next one has none of them in its cache."""

import asyncio
import itertools
import os
import signal
import statistics

from bench.fleet import Fleet
from bench.idle import PARTS, by_part, used
from bench.part import Part
from bench.row import Row, figure
from bench.sizes import Sizes
from domain.model import DesiredState, WorkspaceId

LONGEST_SECONDS = 30.0
"""That one of five hundred may wait. A worker that begins too many replays at once runs into the ten seconds of a
workflow task again and again, and takes minutes."""
RATE = "no-op transitions, {count} at once"
_THERE_AND_BACK = (DesiredState.RUNNING, DesiredState.STANDBY)
_ASKED = 50
"""Of how many the length of their history is looked at."""


async def measure(fleet: Fleet, part: Part, sizes: Sizes, *, rows: bool) -> None:
    """A few at each size; with `rows` as many as should not stall."""
    few = await fleet.at_rest(DesiredState.STANDBY, sizes.few_at_once)
    rates = [len(few) / max(await fleet.all_at_once(few, desired)) for desired in _THERE_AND_BACK]
    part.growth.add(f"transition, {sizes.few_at_once} at once", fleet.size, 1000 / statistics.mean(rates), each=True)
    if not rows:
        return
    crowd = await fleet.at_rest(DesiredState.STANDBY, sizes.at_once)
    name, before = RATE.format(count=len(crowd)), used(fleet)
    waits = [max(await fleet.all_at_once(crowd, desired)) for desired in _THERE_AND_BACK]
    after, both = used(fleet), len(waits) * len(crowd)
    cpu = {part: (after[part].cpu_seconds - before[part].cpu_seconds) * 1000 / both for part in PARTS}
    rates = [len(crowd) / wait for wait in waits]
    part.add(
        Row(name, rates, goal=60, unit="/s", note=f"engine in memory; {len(rates)} rounds", at_least=True),
        Row(f"{name}: CPU of each", [sum(cpu.values())], unit="ms", note=by_part(cpu)),
        longest(f"{name}: longest wait", waits),
        await killed(fleet, crowd, sizes.kills),
    )


async def killed(fleet: Fleet, crowd: list[WorkspaceId], times: int) -> Row:
    """All are at rest in STANDBY, and go there and back in turn, with kill -9 of the only worker before each."""
    waits = []
    shortest, _ = await lengths(fleet, crowd)
    for desired in itertools.islice(itertools.cycle(_THERE_AND_BACK), times):
        _kill(fleet)
        waits.append(max(await fleet.all_at_once(crowd, desired)))
        print(f"  killed and woken: the last of {len(crowd):,} after {figure(waits[-1])} s", flush=True)
    _, longest_history = await lengths(fleet, crowd)
    name = f"{RATE.format(count=len(crowd))}, the worker killed {times} times: longest wait"
    return longest(
        name,
        waits,
        f"kill -9 of the only worker, then all are woken; its start is in it; histories of {shortest} to"
        f" {longest_history} events",
    )


def longest(name: str, waits: list[float], note: str = "") -> Row:
    """The worst of all rounds: of what may not happen, a median says nothing."""
    each = ", ".join(figure(wait) for wait in waits)
    told = f"the worst of {len(waits)} rounds: {each}"
    return Row(name, [max(waits)], goal=LONGEST_SECONDS, note=f"{note}; {told}" if note else told)


async def lengths(fleet: Fleet, crowd: list[WorkspaceId]) -> tuple[int, int]:
    """Of the histories of some of them: the shortest and the longest."""
    asked = await asyncio.gather(*(fleet.history(workspace) for workspace in crowd[:_ASKED]))
    return min(asked), max(asked)


def _kill(fleet: Fleet) -> None:
    pid = fleet.simulation.stack.supervisor.pid("worker")
    if pid is None:
        raise RuntimeError("there is no worker to kill")
    os.kill(pid, signal.SIGKILL)
