"""PROMISES 17 and 19: what happens to the disk that a store keeps its bytes on."""

import os
import random
import shutil
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from temporalio.exceptions import ApplicationError

from adapters.docker.runtime import DockerRuntime
from adapters.postgres.database import open_database
from adapters.s3.client import S3Config
from adapters.s3.store import S3ArchiveStore, open_store
from domain.model import DesiredState, ErrorReason, Phase
from starter.embedded.stack import Stack
from tests.archive.bench import Bench
from tests.archive.volumes import Volumes
from tests.conftest import OwnServices

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]

MIB = 1 << 20
DISK = 128 * MIB
HOME = 12 * MIB


@dataclass
class Scene:
    stack: Stack
    bench: Bench
    archives: S3ArchiveStore
    folder: Path
    """Of a small file system of its own; all that the store has is in it."""

    async def restart(self) -> None:
        await self.stack.supervisor.pause("seaweed")
        await self.stack.supervisor.resume("seaweed")
        await self.stack.supervisor.ready("seaweed")


@pytest.fixture
async def scene(
    own_services: OwnServices, database_url: str, docker_runtime: DockerRuntime, volumes: Volumes, tmp_path: Path
) -> AsyncIterator[Scene]:
    stack = await own_services("seaweed")
    env = stack.env
    folder, image = Path(env["S3_DIRECTORY"]), tmp_path / "disk"
    await stack.supervisor.pause("seaweed")
    subprocess.run(["truncate", "-s", str(DISK), image], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, folder], check=True)
    try:
        await stack.supervisor.resume("seaweed")
        await stack.supervisor.ready("seaweed")
        database = await open_database(database_url)
        # It answers late where its disk fails it.
        config = S3Config(env["S3_ENDPOINT"], env["S3_ACCESS_KEY"], env["S3_BUCKET"], env["S3_SECRET_KEY"], timeout=3)
        async with open_store(config) as archives:
            bench = Bench(database, docker_runtime, docker_runtime.homes(), archives, volumes, stall_seconds=4)
            yield Scene(stack, bench, archives, folder)
        await database.close()
    finally:
        await stack.supervisor.pause("seaweed")
        # A process that gets mounts of its own keeps all of the machine's busy for a moment.
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(home: Path) -> None:
    (home / "random").write_bytes(random.Random(17).randbytes(HOME))


async def test_a_store_that_runs_out_of_space_loses_nothing(scene: Scene) -> None:
    """In the middle of an upload, as its own disk says: ERROR with a reason, the home stays, and no archive is said to
    be there. With room again, it goes on."""
    bench = scene.bench
    workspace, before = await bench.workspace(fill)
    ballast = scene.folder / "ballast"
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(scene.folder).free - HOME // 2)
    step = await bench.claim(workspace, DesiredState.ARCHIVED)
    assert await bench.operate(workspace, step) in {ErrorReason.ACTION_FAILED, ErrorReason.UNREACHABLE}
    row = await bench.row(workspace)
    assert (row.phase, row.archive_key, row.error_count) == (Phase.ERROR, None, 3)
    assert bench.home(workspace) == before
    ballast.unlink()
    await scene.restart()
    await bench.recover(workspace)
    await bench.drive(workspace, Phase.ARCHIVED)
    assert [upload async for upload in scene.archives.list_uploads()] == []
    await bench.want(workspace, DesiredState.STANDBY)
    await bench.drive(workspace, Phase.STANDBY)
    assert bench.home(workspace) == before


@pytest.mark.full
async def test_a_byte_that_changes_on_the_stores_own_disk_is_found(scene: Scene) -> None:
    """Whatever the store says of it: never a home, and the archive is not given up. Mended, it comes back."""
    bench = scene.bench
    workspace, before = await bench.archived(fill)
    key = (await bench.row(workspace)).archive_key or ""
    body = b"".join([chunk async for chunk in scene.archives.download(key)])
    await scene.stack.supervisor.pause("seaweed")
    file, place = _stored(scene.folder, body[HOME // 4 :][:64])
    _flip(file, place)
    await scene.stack.supervisor.resume("seaweed")
    await scene.stack.supervisor.ready("seaweed")
    step = await bench.claim(workspace, DesiredState.STANDBY)
    with pytest.raises(ApplicationError):
        await bench.attempt(workspace, step)
    row = await bench.row(workspace)
    assert (row.phase, row.archive_key, row.home_ctx.restoring) == (Phase.ARCHIVED, key, key)
    await scene.stack.supervisor.pause("seaweed")
    _flip(file, place)
    await scene.stack.supervisor.resume("seaweed")
    await scene.stack.supervisor.ready("seaweed")
    assert await bench.operate(workspace, step) is None
    assert bench.home(workspace) == before


def _stored(folder: Path, sample: bytes) -> tuple[Path, int]:
    """Where the store keeps these bytes."""
    found = [(path, path.read_bytes().find(sample)) for path in folder.rglob("*.dat")]
    ((file, place),) = [each for each in found if each[1] >= 0]
    return file, place


def _flip(file: Path, place: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(place)
        byte = opened.read(1)[0]
        opened.seek(place)
        opened.write(bytes([byte ^ 1]))
