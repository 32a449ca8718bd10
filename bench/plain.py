"""What archives and restores are measured against: the same work by plain tools, on the same disk and store."""

import asyncio
import os
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from boto3.s3.transfer import TransferConfig  # type: ignore[import-untyped]

from adapters.s3.client import S3Config, open_client
from bench.installation import Installation

if TYPE_CHECKING:
    from types_aiobotocore_s3.client import S3Client

MIB = 1024 * 1024


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


async def quiet() -> None:
    """Nobody pays for what another one has left to the disk: removing many files takes a while after it is done."""
    await asyncio.to_thread(os.sync)


async def measured(installation: Installation, home: Path) -> Floor:
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
        upload = await timed(_up(client, config.bucket, target))
        flushed_up = await _clocked(_flushed(installation.stack.data))
        read_back = await timed(_down(client, config.bucket, "sha256sum > /dev/null"))
        removal = await timed(_removed(target))
        target.mkdir()
        download = await timed(_down(client, config.bucket, f"zstd -dq | tar -C {target} -xp"))
        flushed_down = await _clocked(_flushed(target))
        await client.delete_object(Bucket=config.bucket, Key="floor")
    await _removed(target)
    return Floor(upload, download, removal, read_back, flushed_up, flushed_down)


async def timed(work: Awaitable[None]) -> float:
    await quiet()
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
