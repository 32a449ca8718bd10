"""Workspaces that sleep: what they cost while nobody does anything."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.fleet import Fleet
from bench.part import Part
from bench.row import Row
from bench.sizes import Sizes
from bench.usage import Usage, usage
from domain.model import DesiredState, WorkspaceId
from settings import Settings

PARTS = ("temporal", "worker", "api", "postgres", "valkey")
_LOOKING_SECONDS = 15.0
_LOOK_INTERVAL: float = Settings.model_fields["coordinator_safety_interval"].default
_TTL_SCHEDULE = "codehub-ttl"
_KB, _MB = 1024, 1024 * 1024


@dataclass(frozen=True)
class Spell:
    """What a while cost."""

    seconds: float
    ticks: int
    """Of TTL, in it. The census is as frequent."""
    cpu: dict[str, float]
    """Seconds of each part."""
    memory: dict[str, float]
    """MB of each part, at its end."""
    stored: dict[str, int]
    """Bytes in each database, at its end."""
    grown: int
    """Bytes."""
    wal: int
    """Bytes that PostgreSQL wrote to its log."""

    @property
    def cores(self) -> dict[str, float]:
        """Percent of a core."""
        return {name: seconds / self.seconds * 100 for name, seconds in self.cpu.items()}


@dataclass(frozen=True)
class Look:
    """What one workflow's look by its own timer costs, with nothing to do."""

    cpu: float
    """Seconds."""
    stored: float
    """Bytes."""
    count: int
    """Of them, side by side."""

    def cores(self, size: int) -> float:
        """Percent of a core, where so many take theirs."""
        return self.cpu * 100 * size / _LOOK_INTERVAL


async def measure(fleet: Fleet, part: Part, sizes: Sizes, seconds: float, *, rows: bool) -> None:
    """`seconds` are enough for each of the clocks: sweeps, ticks of TTL and the census. They are too few for the look
    that each workflow takes by its own timer every few hours: what such a look costs is measured apart, and added.
    """
    await asyncio.sleep(sizes.quiet_seconds)
    idle = await spell(fleet, seconds)
    look = await _look(fleet, idle, sizes.looks)
    growth, size, minutes = part.growth, fleet.size, idle.seconds / 60
    growth.add("idle: CPU", size, sum(idle.cores.values()) + look.cores(size), "% of a core")
    growth.add("idle: memory", size, sum(idle.memory.values()), "MB")
    growth.add("idle: databases", size, sum(idle.stored.values()) / _MB, "MB")
    growth.add("idle: growth of the databases", size, idle.grown / _KB / minutes, "KB/min")
    growth.add("idle: WAL of PostgreSQL", size, idle.wal / _KB / minutes, "KB/min")
    if rows:
        part.add(*_rows(size, idle, look))


def _rows(size: int, idle: Spell, look: Look) -> list[Row]:
    looks = look.cores(size)
    cores = sum(idle.cores.values()) + looks
    of_it = f"{by_part(idle.cores)}, and {looks:.1f} for the look that each takes every {_LOOK_INTERVAL / 3600:g} hours"
    stored = {name: count / _MB for name, count in idle.stored.items()}
    window = f"in {idle.seconds:.0f} s with {idle.ticks} ticks of TTL"
    return [
        Row(f"{size:,} idle: CPU", [cores], goal=5, unit="% of a core", note=f"{of_it}; {window}"),
        Row(f"{size:,} idle: growth of the databases", [idle.grown / _KB], goal=0, unit="KB", note=window),
        Row(f"{size:,} idle: WAL of PostgreSQL", [idle.wal / _KB], unit="KB", note=f"written, not kept; {window}"),
        Row("one look with nothing to do: CPU", [look.cpu * 1000], unit="ms", note=f"of {look.count} at once"),
        Row("one look with nothing to do: databases", [look.stored / _KB], unit="KB", note="until continue-as-new"),
        Row(f"{size:,} idle: memory", [sum(idle.memory.values())], unit="MB", note=by_part(idle.memory)),
        Row(
            f"{size:,} idle: databases",
            [sum(stored.values())],
            unit="MB",
            note=f"{by_part(stored)}; one look each",
        ),
    ]


async def spell(fleet: Fleet, seconds: float, waking: Sequence[WorkspaceId] = ()) -> Spell:
    """With some that are woken at its beginning."""
    ticks, stored, wal, before = await _ticks(fleet), await _stored(fleet), await _wal(fleet), used(fleet)
    began = time.monotonic()
    await fleet.waker.wake_all(waking)
    fleet.used(waking)
    await asyncio.sleep(seconds - (time.monotonic() - began))
    passed, after = time.monotonic() - began, used(fleet)
    stored_after, wal_after = await _stored(fleet), await _wal(fleet)
    return Spell(
        passed,
        await _ticks(fleet) - ticks,
        {name: after[name].cpu_seconds - before[name].cpu_seconds for name in PARTS},
        {name: after[name].memory_bytes / _MB for name in PARTS},
        stored_after,
        sum(stored_after.values()) - sum(stored.values()),
        wal_after - wal,
    )


async def _look(fleet: Fleet, idle: Spell, count: int) -> Look:
    sleeping = await fleet.at_rest(DesiredState.STANDBY, count)
    looked = await spell(fleet, _LOOKING_SECONDS, sleeping)
    # Without what is spent anyway; a percent of a core is a hundredth of a second.
    cpu = sum(looked.cpu.values()) - sum(idle.cores.values()) / 100 * looked.seconds
    grown = looked.grown - idle.grown / idle.seconds * looked.seconds
    return Look(cpu / len(sleeping), grown / len(sleeping), len(sleeping))


def by_part(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.1f}" if value < 10 else f"{name} {value:.0f}" for name, value in values.items())


def used(fleet: Fleet) -> dict[str, Usage]:
    """So far, by each part."""
    pids = {name: fleet.simulation.stack.supervisor.pid(name) for name in PARTS}
    return usage({name: pid for name, pid in pids.items() if pid is not None})


async def _ticks(fleet: Fleet) -> int:
    told = await fleet.client.get_schedule_handle(_TTL_SCHEDULE).describe()
    return told.info.num_actions


async def _stored(fleet: Fleet) -> dict[str, int]:
    """PostgreSQL's own count, and Temporal's file with its log."""
    data: Path = fleet.simulation.stack.data
    ours: int = await fleet.database.fetchval("SELECT pg_database_size(current_database())")
    return {"postgres": ours, "temporal": sum(file.stat().st_size for file in data.rglob("temporal*.db*"))}


async def _wal(fleet: Fleet) -> int:
    return int(await fleet.database.fetchval("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"))
