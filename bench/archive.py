"""Archive and restore against the same work by plain tools on the same volume in the same run."""

import asyncio
import functools
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from adapters.postgres.database import connect
from bench import plain
from bench.installation import Installation
from bench.part import Part
from bench.plain import MIB, quiet, timed
from bench.row import Row, figure
from bench.sizes import Sizes

RESTORE = "restore, {home}"
LARGE = 1000
"""MB. From here on they are told in GB."""
_HEARD_SECONDS = 10.0

# In the database of the benchmark's own installation.
_TELL = """
CREATE OR REPLACE FUNCTION bench_stored() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('bench_stored', NEW.id::text);
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER bench_stored AFTER UPDATE ON workspaces FOR EACH ROW
    WHEN (NEW.archive_key IS DISTINCT FROM OLD.archive_key) EXECUTE FUNCTION bench_stored();
"""


def mixed(megabytes: int) -> str:
    """What such a home is called."""
    return f"{megabytes} MB mixed" if megabytes < LARGE else f"{megabytes / 1000:g} GB mixed"


@dataclass(frozen=True)
class Case:
    name: str
    fill: Callable[[Path], None]
    rounds: int


@dataclass
class Samples:
    """Of each round, in seconds."""

    floors: list[plain.Floor] = field(default_factory=list)
    stored: list[float] = field(default_factory=list)
    archived: list[float] = field(default_factory=list)
    restored: list[float] = field(default_factory=list)


async def run(installation: Installation, part: Part, sizes: Sizes) -> None:
    connection = await connect(installation.env["DATABASE_URL"])
    await connection.execute(_TELL)
    await connection.close()
    part.add(*await _nothing(installation, sizes.rounds))
    for size, rounds in sizes.homes:
        fill = functools.partial(_mixed, megabytes=size)
        part.add(*await _measure(installation, Case(mixed(size), fill, rounds)))
    count, rounds = sizes.small_files
    fill = functools.partial(_small, count=count)
    part.add(*await _measure(installation, Case(f"{count:,} small files", fill, rounds)))
    part.add(*await _memory(installation, sizes.memory_of))


async def _nothing(installation: Installation, rounds: int) -> list[Row]:
    """What every archive and every restore costs, however small: the part of their time that no floor has."""
    workspace = await _filled(installation, lambda _: None)
    taken = Samples()
    for _ in range(rounds):
        await _there_and_back(installation, workspace, taken)
    await installation.delete(workspace)
    return [
        Row("archive, an empty home", taken.archived, note="what is fixed"),
        Row(RESTORE.format(home="an empty home"), taken.restored, note="what is fixed"),
    ]


async def _measure(installation: Installation, case: Case) -> list[Row]:
    """Ours and the floor by turns, so that both meet the same machine; each of them first in every other round."""
    workspace = await _filled(installation, case.fill)
    taken = Samples()
    for number in range(case.rounds):
        if number % 2:
            await _there_and_back(installation, workspace, taken)
        taken.floors.append(await plain.measured(installation, _home(installation, workspace)))
        if not number % 2:
            await _there_and_back(installation, workspace, taken)
    await installation.delete(workspace)
    upload, download = [floor.upload for floor in taken.floors], [floor.download for floor in taken.floors]
    both = [floor.upload + floor.removal for floor in taken.floors]
    kept = [floor.upload + floor.read_back + floor.flushed_up for floor in taken.floors]
    on_disk = [floor.download + floor.flushed_down for floor in taken.floors]
    packing, unpacking, name = "tar | zstd -T0 -3 | upload", "download | zstd -d | tar x", case.name
    restore = RESTORE.format(home=name)
    return [
        Row(f"archive, {name}: stored and verified", taken.stored, upload, 1.3, note=packing),
        Row(f"archive, {name}, with the same care", taken.stored, kept, note="the same, read back | sha256sum, syncfs"),
        Row(f"archive, {name}: volume removed, too", taken.archived, both, 1.3, note=f"{packing}, then rm -rf"),
        Row(restore, taken.restored, download, 1.4, note=unpacking),
        Row(f"{restore}, with the same care", taken.restored, on_disk, note=f"{unpacking}, syncfs"),
    ]


async def _memory(installation: Installation, megabytes: int) -> list[Row]:
    """What a worker needs for a large home beyond what it had when it had just begun, and had made a volume."""
    supervisor = installation.stack.supervisor
    await supervisor.pause("worker")
    await supervisor.resume("worker")
    # Most of it compresses: memory is what it is for.
    workspace = await _filled(installation, functools.partial(_mixed, megabytes=megabytes, random_part=0.2))
    process, taken, peaks = Path(f"/proc/{supervisor.pid('worker')}"), Samples(), []
    at_rest = _kilobytes(process, "VmRSS")
    for way in (_archive, _restore):
        # The peak counts from here on.
        (process / "clear_refs").write_text("5")
        await way(installation, workspace, taken)
        peaks.append((_kilobytes(process, "VmHWM") - at_rest) / 1024)
    await installation.delete(workspace)
    archived, restored = taken.archived[0], taken.restored[0]
    return [
        Row(
            f"{what}, {mixed(megabytes)}: peak memory of the worker over rest",
            [peak],
            goal=150,
            unit="MB",
            note=f"{figure(at_rest / 1024)} MB at rest; it took {figure(seconds)} s",
        )
        for what, peak, seconds in zip(("archive", "restore"), peaks, (archived, restored), strict=True)
    ]


async def _there_and_back(installation: Installation, workspace: str, taken: Samples) -> None:
    await _archive(installation, workspace, taken)
    await _restore(installation, workspace, taken)


async def _archive(installation: Installation, workspace: str, taken: Samples) -> None:
    stored, archived = await _archived(installation, workspace)
    taken.stored.append(stored)
    taken.archived.append(archived)


async def _restore(installation: Installation, workspace: str, taken: Samples) -> None:
    taken.restored.append(await _go(installation, workspace, "STANDBY"))


def _kilobytes(process: Path, name: str) -> int:
    lines = (process / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


async def _filled(installation: Installation, fill: Callable[[Path], None]) -> str:
    workspace = await installation.create("STANDBY")
    await installation.until(workspace, "STANDBY")
    await asyncio.to_thread(fill, _home(installation, workspace))
    return workspace


async def _archived(installation: Installation, workspace: str) -> tuple[float, float]:
    """Until the archive counts, and until the volume is gone. Waiting for either costs the installation nothing."""
    async with _stored(installation, workspace) as stored:
        await quiet()
        began = time.monotonic()
        await installation.want(workspace, "ARCHIVED")
        await installation.until(workspace, "ARCHIVED")
        ended = time.monotonic()
        async with asyncio.timeout(_HEARD_SECONDS):
            return await stored - began, ended - began


@asynccontextmanager
async def _stored(installation: Installation, workspace: str) -> AsyncIterator[asyncio.Future[float]]:
    """When its archive_key is saved. Of that no event tells: to people, an archive counts once the operation is over.
    So the database itself does."""
    heard: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def hear(_connection: object, _pid: int, _channel: str, payload: object) -> None:
        if payload == workspace and not heard.done():
            heard.set_result(time.monotonic())

    connection = await connect(installation.env["DATABASE_URL"])
    try:
        await connection.add_listener("bench_stored", hear)
        yield heard
    finally:
        await connection.close()


async def _go(installation: Installation, workspace: str, desired: str) -> float:
    async def gone() -> None:
        await installation.want(workspace, desired)
        await installation.until(workspace, desired)

    return await timed(gone())


def _home(installation: Installation, workspace: str) -> Path:
    return Path(installation.engine.volumes.get(f"ws-{workspace}-home").attrs["Mountpoint"])


def _mixed(home: Path, megabytes: int, random_part: float = 0.5) -> None:
    """Some of it does not compress, some of it does, as homes are."""
    line = b"def function(argument): return argument + 1  # some text that repeats\n"
    noise = int(10 * MIB * random_part)
    text = line * (10 * MIB // len(line) + 1)
    for number in range(megabytes // 10):
        (home / f"random-{number}").write_bytes(os.urandom(noise))
        (home / f"text-{number}").write_bytes(text[: 10 * MIB - noise])


def _small(home: Path, count: int) -> None:
    for number in range(count):
        folder = home / f"d{number // 500}"
        if number % 500 == 0:
            folder.mkdir()
        (folder / f"f{number}").write_bytes(os.urandom(number % 2000))
