"""Archive and restore against the same work by plain tools on the same volume in the same run."""

import asyncio
import functools
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from boto3.s3.transfer import TransferConfig  # type: ignore[import-untyped]

from adapters.s3.client import S3Config, open_client
from bench.installation import Installation
from bench.part import Part
from bench.row import Row
from bench.sizes import Sizes

if TYPE_CHECKING:
    from types_aiobotocore_s3.client import S3Client

MIB = 1024 * 1024
RESTORE = "restore, {home}"
LARGE = 1000
"""MB. From here on a home says something about the worker's memory, too."""


def mixed(megabytes: int) -> str:
    """What such a home is called."""
    return f"{megabytes} MB mixed" if megabytes < LARGE else f"{megabytes / 1000:g} GB mixed"


@dataclass(frozen=True)
class Case:
    name: str
    fill: Callable[[Path], None]
    rounds: int
    large: bool = False


@dataclass(frozen=True)
class Floor:
    """Seconds."""

    upload: float
    download: float
    removal: float
    read_back: float
    """What was uploaded, and its checksum."""
    flushed_up: float
    flushed_down: float
    """Until what was uploaded, and what was extracted, is on the disk."""


@dataclass
class Samples:
    """Of each round. Seconds, and for memory MB."""

    floors: list[Floor] = field(default_factory=list)
    stored: list[float] = field(default_factory=list)
    archived: list[float] = field(default_factory=list)
    restored: list[float] = field(default_factory=list)
    archiving: list[float] = field(default_factory=list)
    restoring: list[float] = field(default_factory=list)


async def run(installation: Installation, part: Part, sizes: Sizes) -> None:
    part.add(*await _nothing(installation, sizes.rounds))
    small = Case(f"{sizes.small_files:,} small files", lambda home: _small(home, sizes.small_files), 1)
    for size, rounds in sizes.homes:
        fill = functools.partial(_mixed, megabytes=size)
        part.add(*await _measure(installation, Case(mixed(size), fill, rounds, size >= LARGE)))
    part.add(*await _measure(installation, small))
    if sizes.memory_of is None:
        return
    workspace = await _filled(installation, lambda home: _mixed(home, sizes.memory_of or 0, random_part=0.2))
    taken = Samples()
    await _there_and_back(installation, workspace, taken)
    await installation.delete(workspace)
    part.add(*_memory(mixed(sizes.memory_of), taken))


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
        taken.floors.append(await _floor(installation, _home(installation, workspace)))
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
        *(_memory(name, taken) if case.large else []),
    ]


def _memory(name: str, taken: Samples) -> list[Row]:
    return [
        Row(f"{what}, {name}: peak memory of the worker over rest", over, goal=150, unit="MB")
        for what, over in (("archive", taken.archiving), ("restore", taken.restoring))
    ]


async def _there_and_back(installation: Installation, workspace: str, taken: Samples) -> None:
    """What the worker needs more than at rest is looked at meanwhile."""
    process = Path(f"/proc/{installation.stack.supervisor.pid('worker')}")
    at_rest = _at_rest(process)
    stored, archived = await _archived(installation, workspace)
    taken.stored.append(stored)
    taken.archived.append(archived)
    taken.archiving.append((_kilobytes(process, "VmHWM") - at_rest) / 1024)
    at_rest = _at_rest(process)
    taken.restored.append(await _go(installation, workspace, "STANDBY"))
    taken.restoring.append((_kilobytes(process, "VmHWM") - at_rest) / 1024)


def _at_rest(process: Path) -> int:
    """Kilobytes; the peak counts from here on."""
    (process / "clear_refs").write_text("5")
    return _kilobytes(process, "VmRSS")


def _kilobytes(process: Path, name: str) -> int:
    lines = (process / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


async def _filled(installation: Installation, fill: Callable[[Path], None]) -> str:
    workspace = await installation.create("STANDBY")
    await installation.until(workspace, "STANDBY")
    await asyncio.to_thread(fill, _home(installation, workspace))
    return workspace


async def _archived(installation: Installation, workspace: str) -> tuple[float, float]:
    """Until the archive counts, and until the volume is gone."""
    former = (await installation.get(workspace))["archive_key"]
    await _quiet()
    began = time.monotonic()
    await installation.want(workspace, "ARCHIVED")
    # No event tells of it: to people, an archive counts once the operation is over.
    while (found := await installation.get(workspace))["archive_key"] == former:
        if found["phase"] == "ERROR":
            raise RuntimeError(f"{workspace}: {found['error_reason']}")
        await asyncio.sleep(0.05)
    stored = time.monotonic() - began
    await installation.until(workspace, "ARCHIVED")
    return stored, time.monotonic() - began


async def _go(installation: Installation, workspace: str, desired: str) -> float:
    async def gone() -> None:
        await installation.want(workspace, desired)
        await installation.until(workspace, desired)

    return await _timed(gone())


def _home(installation: Installation, workspace: str) -> Path:
    return Path(installation.engine.volumes.get(f"ws-{workspace}-home").attrs["Mountpoint"])


async def _quiet() -> None:
    """Nobody pays for what another one has left to the disk: removing many files takes a while after it is done."""
    await asyncio.to_thread(os.sync)


async def _floor(installation: Installation, home: Path) -> Floor:
    """Plain tools, piped into and out of the store. Nothing is verified.

    In the order of ours, a removal before the extraction: ext4 is slow to make files where many have just been removed.
    """
    env = installation.env
    keys = (env["S3_ENDPOINT"], env["S3_ACCESS_KEY"], env["S3_BUCKET"], env["S3_SECRET_KEY"])
    # Its client tries less hard than ours: a store that is slow for a moment must not end the run.
    config = S3Config(*keys, timeout=300)
    target = home.parent / "floor"
    await _ended(await _shell(f"cp -a {home} {target}"))
    async with open_client(config) as client:
        upload = await _timed(_up(client, config.bucket, target))
        flushed_up = await _clocked(_flushed(installation.stack.data))
        read_back = await _timed(_down(client, config.bucket, "sha256sum > /dev/null"))
        removal = await _timed(_removed(target))
        target.mkdir()
        download = await _timed(_down(client, config.bucket, f"zstd -dq | tar -C {target} -xp"))
        flushed_down = await _clocked(_flushed(target))
        await client.delete_object(Bucket=config.bucket, Key="floor")
    await _removed(target)
    return Floor(upload, download, removal, read_back, flushed_up, flushed_down)


async def _timed(work: Awaitable[None]) -> float:
    await _quiet()
    return await _clocked(work)


async def _clocked(work: Awaitable[None]) -> float:
    """With all that was done before still on its way to the disk."""
    began = time.monotonic()
    await work
    return time.monotonic() - began


async def _flushed(directory: Path) -> None:
    await _ended(await _shell(f"sync -f {directory}"))


async def _up(client: "S3Client", bucket: str, home: Path) -> None:
    packing = await _shell(f"tar -C {home} -c . | zstd -T0 -3 -q", stdout=asyncio.subprocess.PIPE)
    assert packing.stdout is not None
    transfer = TransferConfig(multipart_chunksize=16 * MIB, multipart_threshold=16 * MIB)
    await client.upload_fileobj(packing.stdout, bucket, "floor", Config=transfer)  # type: ignore[arg-type]
    await _ended(packing)


async def _down(client: "S3Client", bucket: str, into: str) -> None:
    unpacking = await _shell(into, stdin=asyncio.subprocess.PIPE)
    assert unpacking.stdin is not None
    answer = await client.get_object(Bucket=bucket, Key="floor")
    async with answer["Body"] as body:
        while chunk := await body.content.read(MIB):
            unpacking.stdin.write(chunk)
            await unpacking.stdin.drain()
    unpacking.stdin.close()
    await _ended(unpacking)


async def _removed(folder: Path) -> None:
    await _ended(await _shell(f"rm -rf {folder}"))


async def _shell(command: str, **pipes: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_shell(
        f"set -o pipefail; {command}",
        executable="/bin/bash",
        limit=4 * MIB,
        **pipes,  # type: ignore[arg-type]
    )


async def _ended(process: asyncio.subprocess.Process) -> None:
    if code := await process.wait():
        raise RuntimeError(f"a plain tool ended with {code}")


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
