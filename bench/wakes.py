"""How soon a workspace that sleeps begins to do what it is woken for."""

import asyncio
import statistics
from collections.abc import Awaitable, Callable

from bench.fleet import Fleet
from bench.part import Part
from bench.row import Row, figure, quantile
from bench.sizes import Sizes
from domain.model import DesiredState, WorkspaceId
from workflows.messages import WorkspaceInput

HISTORY_LIMIT = WorkspaceInput(WorkspaceId("")).history_limit
_LONG = HISTORY_LIMIT * 9 // 10
_ROUNDS = 3

Choose = Callable[[int], Awaitable[list[WorkspaceId]]]


async def measure(fleet: Fleet, part: Part, sizes: Sizes, *, rows: bool) -> None:
    """Any of them; with `rows` also those that the worker has in its cache, those that it has to replay, and those of
    which it has to replay as much as there can be.
    """
    standby = DesiredState.STANDBY
    name, count = f"wake with {fleet.size:,} idle", sizes.wakes
    rounds = await _rounds(fleet, lambda number: fleet.at_rest(standby, number), count, _ROUNDS if rows else 1)
    part.growth.add("wake, p50", fleet.size, statistics.median(one for taken in rounds for one in taken), each=True)
    if not rows:
        return
    part.add(_row(f"{name}, any of them", rounds, 300))
    cached = await _rounds(fleet, lambda number: fleet.in_cache(standby, number), count // 2, _ROUNDS)
    part.add(_row(f"{name}, in the worker's cache", cached))
    if await fleet.not_in_cache(standby, 1):
        replayed = await _rounds(fleet, lambda number: fleet.not_in_cache(standby, number), count // 2, _ROUNDS)
        part.add(_row(f"{name}, not in its cache", replayed, 300))
        taken = await _woken(fleet, sorted(fleet.reserved))
        part.add(_row(f"{name}, not in its cache, history of {_LONG} to {HISTORY_LIMIT} events", [taken], 300))


async def lengthen(fleet: Fleet, count: int) -> None:
    """Some histories, as far as they may grow before they continue as new. They are reserved for `measure`."""
    short = await fleet.at_rest(DesiredState.STANDBY, count)
    fleet.reserved |= set(short)
    while short:
        for desired in (DesiredState.RUNNING, DesiredState.STANDBY):
            await fleet.all_at_once(short, desired)
        lengths = await asyncio.gather(*(fleet.history(workspace) for workspace in short))
        short = [workspace for workspace, length in zip(short, lengths, strict=True) if length < _LONG]


async def _rounds(fleet: Fleet, choose: Choose, count: int, rounds: int) -> list[list[float]]:
    return [await _woken(fleet, await choose(count)) for _ in range(rounds)]


async def _woken(fleet: Fleet, sleeping: list[WorkspaceId]) -> list[float]:
    """Milliseconds, one at a time; then they sleep again."""
    taken = [await fleet.wake_latency(workspace, DesiredState.RUNNING) * 1000 for workspace in sleeping]
    await fleet.all_at_once(sleeping, DesiredState.STANDBY)
    return taken


def _row(name: str, rounds: list[list[float]], goal: float | None = None) -> Row:
    usual = statistics.median(one for taken in rounds for one in taken)
    note = f"p50 {figure(usual)} ms; desired_state set → operation begun; {len(rounds)} rounds of {len(rounds[0])}"
    return Row(f"{name}, p99", [quantile(taken, 99) for taken in rounds], goal=goal, unit="ms", note=note)
