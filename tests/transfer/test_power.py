"""A machine that loses power: what was said to be kept is on the disk, not only in its cache.

A file system of its own in a file; what the file holds at a moment is what a disk would hold that loses power then.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from adapters.docker.homes import TOP, DockerHomes
from adapters.docker.runtime import DockerRuntime
from adapters.s3.store import S3ArchiveStore
from domain.model import OperationId, WorkspaceId
from tests.archive.trees import snapshot

SIZE = "96M"


class Disk:
    def __init__(self, folder: Path) -> None:
        self._image = folder / "disk"
        self._folder = folder
        self.path = folder / "mounted"

    @contextmanager
    def mounted(self) -> Iterator[None]:
        subprocess.run(["truncate", "-s", SIZE, self._image], check=True)
        subprocess.run(["mkfs.ext4", "-q", self._image], check=True)
        with _mounted(self._image, self.path):
            yield

    @contextmanager
    def after_a_power_loss(self) -> Iterator[Path]:
        """What is found when the machine comes up again."""
        copy = self._folder / "copy"
        shutil.copyfile(self._image, copy)
        with _mounted(copy, self._folder / "again"):
            yield self._folder / "again"


@contextmanager
def _mounted(image: Path, at: Path) -> Iterator[None]:
    at.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", "loop", image, at], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", at], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path)
    with made.mounted():
        yield made


def _homes_at(directory: Path, plain: DockerHomes) -> DockerHomes:
    class There(DockerHomes):
        __slots__ = ()

        async def _directory(self, workspace_id: WorkspaceId) -> Path:
            return directory

    return There(plain.engine, plain.config, plain.containers, plain.volumes)


@pytest.mark.docker
async def test_a_restored_home_outlives_a_power_loss(disk: Disk, docker_runtime: DockerRuntime, tmp_path: Path) -> None:
    """Before its marker is saved: a home of empty files would be taken for the home, and archived over the good one."""
    source = tmp_path / "source" / TOP
    source.mkdir(parents=True)
    for number in range(60):
        (source / f"file {number}").write_bytes(os.urandom(number * 3000))
    before = snapshot(source)
    tar = subprocess.run(["tar", "-C", source.parent, "--format=posix", "-c", TOP], capture_output=True, check=True)
    home = disk.path / "home"
    home.mkdir()
    async with _homes_at(home, docker_runtime.homes()).write(WorkspaceId(str(uuid4())), OperationId("op")) as sink:
        await sink.extract([tar.stdout])
    with disk.after_a_power_loss() as found:
        assert snapshot(found / "home") == before


async def test_what_a_store_on_this_machine_took_outlives_a_power_loss(disk: Disk, archives: S3ArchiveStore) -> None:
    """Before the volume goes, for a store that does not flush what it has taken."""
    taken = disk.path / "taken"
    taken.write_bytes(b"an archive" * 100_000)
    await S3ArchiveStore(archives.client, archives.bucket, disk.path).settle()
    with disk.after_a_power_loss() as found:
        assert (found / "taken").read_bytes() == taken.read_bytes()
