"""Archive and restore against the same work by plain tools on the same volume in the same run."""

import asyncio
import os
import time
from pathlib import Path

from adapters.s3.client import S3Config, open_client
from bench.installation import Installation
from bench.row import Row

MIB = 1024 * 1024
ROUNDS = 3


async def run(installation: Installation) -> list[Row]:
    rows = []
    for name, fill in (("200 MB mixed", _mixed_200), ("50,000 small files", _small)):
        rows += await _measure(installation, name, fill, ROUNDS)
    rows += await _measure(installation, "2 GB mixed", _mixed_2000, 1)
    return rows


async def _measure(installation: Installation, name: str, fill: object, rounds: int) -> list[Row]:
    workspace = await installation.create("STANDBY")
    await installation.until(workspace, "STANDBY")
    home = _home(installation, workspace)
    await asyncio.to_thread(fill, home)  # type: ignore[arg-type]
    out, out_floor, back, back_floor = [], [], [], []
    for _ in range(rounds):
        taken = await _floor(installation, _home(installation, workspace))
        out_floor.append(taken[0])
        back_floor.append(taken[1])
        out.append(await _go(installation, workspace, "ARCHIVED"))
        back.append(await _go(installation, workspace, "STANDBY"))
    await installation.delete(workspace)
    return [
        Row(f"archive, {name}", out, out_floor, 1.3, note="tar | zstd -T0 -3 | upload"),
        Row(f"restore, {name}", back, back_floor, 1.4, note="download | zstd -d | tar x"),
    ]


async def _go(installation: Installation, workspace: str, desired: str) -> float:
    began = time.monotonic()
    await installation.want(workspace, desired)
    await installation.until(workspace, desired)
    return time.monotonic() - began


def _home(installation: Installation, workspace: str) -> Path:
    return Path(installation.engine.volumes.get(f"ws-{workspace}-home").attrs["Mountpoint"])


async def _floor(installation: Installation, home: Path) -> tuple[float, float]:
    """Plain tools, with a file between them and the store where they need one; its time counts."""
    env = installation.env
    config = S3Config(env["S3_ENDPOINT"], env["S3_ACCESS_KEY"], env["S3_BUCKET"], env["S3_SECRET_KEY"])
    archive = home.parent / "floor.tar.zst"
    target = home.parent / "floor"
    target.mkdir()
    async with open_client(config) as client:
        began = time.monotonic()
        await _shell(f"tar -C {home} -c . | zstd -T0 -3 -q -o {archive}")
        await client.upload_file(str(archive), config.bucket, "floor")
        out = time.monotonic() - began
        archive.unlink()
        began = time.monotonic()
        await client.download_file(config.bucket, "floor", str(archive))
        await _shell(f"zstd -dc {archive} | tar -C {target} -xp")
        back = time.monotonic() - began
        await client.delete_object(Bucket=config.bucket, Key="floor")
    await _shell(f"rm -rf {archive} {target}")
    return out, back


async def _shell(command: str) -> None:
    process = await asyncio.create_subprocess_shell(f"set -o pipefail; {command}", executable="/bin/bash")
    if await process.wait():
        raise RuntimeError(command)


def _mixed_200(home: Path) -> None:
    _mixed(home, 200)


def _mixed_2000(home: Path) -> None:
    _mixed(home, 2000)


def _mixed(home: Path, megabytes: int) -> None:
    """Half of it does not compress, half of it does, as homes are."""
    line = b"def function(argument): return argument + 1  # some text that repeats\n"
    for number in range(megabytes // 10):
        (home / f"random-{number}").write_bytes(os.urandom(5 * MIB))
        (home / f"text-{number}").write_bytes((line * (5 * MIB // len(line) + 1))[: 5 * MIB])


def _small(home: Path) -> None:
    for number in range(50_000):
        folder = home / f"d{number // 500}"
        if number % 500 == 0:
            folder.mkdir()
        (folder / f"f{number}").write_bytes(os.urandom(number % 2000))
