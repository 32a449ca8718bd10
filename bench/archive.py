"""Archive and restore against the same work by plain tools on the same volume in the same run."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from boto3.s3.transfer import TransferConfig  # type: ignore[import-untyped]

from adapters.s3.client import S3Config, open_client
from bench.installation import Installation
from bench.row import Row

if TYPE_CHECKING:
    from types_aiobotocore_s3.client import S3Client

MIB = 1024 * 1024
FULL = "BENCH_FULL"
"""In the environment: also what takes minutes."""


@dataclass(frozen=True)
class Case:
    name: str
    fill: Callable[[Path], None]
    rounds: int


@dataclass(frozen=True)
class Floor:
    """Seconds."""

    upload: float
    download: float
    removal: float


async def run(installation: Installation) -> list[Row]:
    cases = [Case("200 MB mixed", lambda home: _mixed(home, 200), 3), Case("50,000 small files", _small, 2)]
    if FULL in os.environ:
        cases.append(Case("2 GB mixed", lambda home: _mixed(home, 2000), 1))
    rows = [row for case in cases for row in await _measure(installation, case)]
    if FULL in os.environ:
        rows += await _memory(installation)
    return rows


async def _measure(installation: Installation, case: Case) -> list[Row]:
    """Ours and the floor by turns, so that both meet the same machine."""
    workspace = await _filled(installation, case.fill)
    floors, stored, out, back = [], [], [], []
    for _ in range(case.rounds):
        floors.append(await _floor(installation, _home(installation, workspace)))
        taken = await _archived(installation, workspace)
        stored.append(taken[0])
        out.append(taken[1])
        back.append(await _go(installation, workspace, "STANDBY"))
    await installation.delete(workspace)
    upload, download = [floor.upload for floor in floors], [floor.download for floor in floors]
    both = [floor.upload + floor.removal for floor in floors]
    return [
        Row(f"archive, {case.name}: stored and verified", stored, upload, 1.3, note="tar | zstd -T0 -3 | upload"),
        Row(f"archive, {case.name}: volume removed, too", out, both, 1.3, note="the same, then rm -rf"),
        Row(f"restore, {case.name}", back, download, 1.4, note="download | zstd -d | tar x"),
    ]


async def _memory(installation: Installation) -> list[Row]:
    """What the worker needs more than at rest, at most, for 5 GB there and back."""
    workspace = await _filled(installation, lambda home: _mixed(home, 5000, random_part=0.2))
    rows = []
    for name, desired in (("archive", "ARCHIVED"), ("restore", "STANDBY")):
        process = Path(f"/proc/{installation.stack.supervisor.pid('worker')}")
        (process / "clear_refs").write_text("5")
        rest = _kilobytes(process, "VmRSS")
        await _go(installation, workspace, desired)
        over = (_kilobytes(process, "VmHWM") - rest) / 1024
        rows.append(Row(f"{name}, 5 GB: peak memory of the worker over rest", [over], goal=150, unit="MB"))
    await installation.delete(workspace)
    return rows


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
    while (await installation.get(workspace))["archive_key"] == former:
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
        removal = await _timed(_removed(target))
        target.mkdir()
        download = await _timed(_down(client, config.bucket, target))
        await client.delete_object(Bucket=config.bucket, Key="floor")
    await _removed(target)
    return Floor(upload, download, removal)


async def _timed(work: Awaitable[None]) -> float:
    await _quiet()
    began = time.monotonic()
    await work
    return time.monotonic() - began


async def _up(client: "S3Client", bucket: str, home: Path) -> None:
    packing = await _shell(f"tar -C {home} -c . | zstd -T0 -3 -q", stdout=asyncio.subprocess.PIPE)
    assert packing.stdout is not None
    transfer = TransferConfig(multipart_chunksize=16 * MIB, multipart_threshold=16 * MIB)
    await client.upload_fileobj(packing.stdout, bucket, "floor", Config=transfer)  # type: ignore[arg-type]
    await _ended(packing)


async def _down(client: "S3Client", bucket: str, home: Path) -> None:
    unpacking = await _shell(f"zstd -dq | tar -C {home} -xp", stdin=asyncio.subprocess.PIPE)
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


def _small(home: Path) -> None:
    for number in range(50_000):
        folder = home / f"d{number // 500}"
        if number % 500 == 0:
            folder.mkdir()
        (folder / f"f{number}").write_bytes(os.urandom(number % 2000))
