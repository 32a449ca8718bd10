"""A worker that is killed again and again, with histories as long as those of workspaces that are used every day: all
are woken at once each time, and the next worker replays them all. Nothing may stall.

To make the histories takes longer than all that comes after; they say how many transitions a second there can be.
"""

from bench import storm
from bench.fleet import Fleet, fleet
from bench.idle import PARTS, by_part, used
from bench.installation import Simulation
from bench.part import Part
from bench.row import Row
from bench.sizes import Sizes
from bench.wakes import HISTORY_LIMIT
from domain.model import DesiredState, WorkspaceId

_THERE_AND_BACK = (DesiredState.RUNNING, DesiredState.STANDBY)


async def run(simulation: Simulation, part: Part, sizes: Sizes) -> None:
    async with fleet(simulation) as workspaces:
        # One in ten is made to run: so many more that all of the crowd are at rest in STANDBY.
        await workspaces.make(sizes.at_once * 10 // 9 + 10)
        crowd = await workspaces.at_rest(DesiredState.STANDBY, sizes.at_once)
        part.add(*await _lengthened(workspaces, crowd, sizes.long_since))
        part.add(await storm.killed(workspaces, crowd, sizes.more_kills))


async def _lengthened(workspaces: Fleet, crowd: list[WorkspaceId], events: int) -> list[Row]:
    """Until each has so many, by as many transitions of all at once as it takes."""
    if events > HISTORY_LIMIT * 0.8:
        raise ValueError(f"histories are cut at {HISTORY_LIMIT} events: not all of them can have {events}")
    waits: list[float] = []
    before = used(workspaces)
    while (await storm.lengths(workspaces, crowd))[0] < events:
        waits += [max(await workspaces.all_at_once(crowd, desired)) for desired in _THERE_AND_BACK]
    after, count = used(workspaces), len(waits) * len(crowd)
    cpu = {name: (after[name].cpu_seconds - before[name].cpu_seconds) * 1000 / count for name in PARTS}
    name = f"{storm.RATE.format(count=len(crowd))}, again and again"
    rates = [len(crowd) / wait for wait in waits]
    return [
        Row(name, rates, unit="/s", note=f"{len(rates)} rounds, from new histories to {events} events", at_least=True),
        Row(f"{name}: CPU of each", [sum(cpu.values())], unit="ms", note=by_part(cpu)),
        storm.longest(f"{name}: longest wait", waits),
    ]
