"""A machine that loses power: what was said to be kept is on the disk, not only in its cache.

A file system of its own in a file; what the file holds at a moment is what a disk would hold that loses power then.
"""

import io
import os
import shutil
import subprocess
import tarfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from adapters.archive_store import unfenced
from adapters.docker.homes import TOP, DockerHomes
from adapters.docker.runtime import DockerRuntime
from adapters.s3.store import S3ArchiveStore
from adapters.transfer import flush
from domain.errors import ActionFailed
from domain.model import OperationId, WorkspaceId
from tests.archive.trees import snapshot
from tests.archive.volumes import Volumes

SIZE = "96M"


class Disk:
    def __init__(self, folder: Path, image: Path | None = None) -> None:
        self._image = image or folder / "disk"
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
        _unmount(at)


def _unmount(at: Path) -> None:
    """A process that gets mounts of its own, as each extraction does, keeps all of the machine's busy for a moment."""
    deadline = time.monotonic() + 30
    while (done := subprocess.run(["umount", at], check=False, capture_output=True, text=True)).returncode:
        assert time.monotonic() < deadline, done.stderr
        time.sleep(0.05)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path)
    with made.mounted():
        yield made


@pytest.fixture
def promising_disk(tmp_path: Path) -> Iterator[Disk]:
    """One that takes more than it can keep: that it can't is known only when it is written out."""
    beneath = tmp_path / "beneath"
    beneath.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20M", "none", beneath], check=True)
    try:
        made = Disk(tmp_path, beneath / "disk")
        with made.mounted():
            yield made
    finally:
        _unmount(beneath)


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


@pytest.mark.docker
async def test_a_home_that_the_engine_restored_is_flushed_where_it_is_in_sight(
    docker_runtime: DockerRuntime, volumes: Volumes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a worker in a container that the engine's folder is mounted into: the engine has no call for it."""
    workspace, home = await volumes.make()
    flushed: list[tuple[int, bool]] = []

    def noted(descriptor: int) -> int:
        flushed.append((os.fstat(descriptor).st_dev, (home / "restored").exists()))
        return int(flush.LIBC.syncfs(descriptor))

    monkeypatch.setattr(flush, "syncfs", noted)
    with io.BytesIO() as tar:
        with tarfile.open(fileobj=tar, mode="w") as writing:
            writing.addfile(tarfile.TarInfo(f"{TOP}/restored"))
        async with docker_runtime.homes(direct=False).write(workspace, OperationId("op")) as sink:
            await sink.extract([tar.getvalue()])
    assert flushed[-1] == (home.stat().st_dev, True)


@pytest.mark.docker
async def test_a_home_that_the_disk_does_not_keep_is_not_restored(
    promising_disk: Disk, docker_runtime: DockerRuntime
) -> None:
    """The kernel tells of it once: also where somebody else was told first, it is no home."""
    home = promising_disk.path / "home"
    home.mkdir()
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as writing:
        member = tarfile.TarInfo(f"{TOP}/large")
        member.size = 40 * 2**20
        writing.addfile(member, io.BytesIO(os.urandom(member.size)))

    async def restored() -> None:
        async with _homes_at(home, docker_runtime.homes()).write(WorkspaceId(str(uuid4())), OperationId("op")) as sink:
            await sink.extract([tar.getvalue()])
            subprocess.run(["sync", "-f", home], check=False, capture_output=True)

    with pytest.raises(ActionFailed, match="can't be kept"):
        await restored()


def test_whoever_asks_while_the_disk_is_flushed_shares_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel does one after the other: thirty restores that end together would wait for thirty flushes."""
    under_way, all_ask, flushed = threading.Event(), threading.Barrier(31), 0

    def slow(descriptor: int) -> int:
        nonlocal flushed
        flushed += 1
        if flushed == 1:
            under_way.set()
            all_ask.wait(60)
            time.sleep(0.5)
        return int(flush.LIBC.syncfs(descriptor))

    def ask(kept: flush.Keeping) -> None:
        all_ask.wait(60)
        kept.keep(0)

    monkeypatch.setattr(flush, "syncfs", slow)
    with ThreadPoolExecutor(31) as pool, flush.keeping(tmp_path) as kept:
        done = [pool.submit(kept.keep, 0)]
        assert under_way.wait(60)
        done += [pool.submit(ask, kept) for _ in range(30)]
        for one in done:
            one.result()
    # Who comes in the last moment may need one more.
    assert flushed < 6


async def test_what_a_store_on_this_machine_took_outlives_a_power_loss(disk: Disk, archives: S3ArchiveStore) -> None:
    """Before the volume goes, for a store that does not flush what it has taken."""
    taken = disk.path / "taken"
    taken.write_bytes(b"an archive" * 100_000)
    with flush.keeping(disk.path) as kept:
        await S3ArchiveStore(archives.client, archives.bucket, kept).settle("home")
    with disk.after_a_power_loss() as found:
        assert (found / "taken").read_bytes() == taken.read_bytes()


async def test_no_archive_is_taken_for_kept_because_another_one_was_told(
    tmp_path: Path, archives: S3ArchiveStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel tells once of what it could not write, and does not say whose it was: all that was uploaded meanwhile
    is doubtful, also to the next attempt, and nothing that comes later."""
    answers = iter([-1, 0, 0, 0])
    monkeypatch.setattr(flush, "syncfs", lambda _: next(answers))
    with flush.keeping(tmp_path) as kept:
        store = S3ArchiveStore(archives.client, archives.bucket, kept)
        for key in ("one", "other"):
            await store.upload(key, _parts(), unfenced)
        for key in ("one", "other", "one"):
            with pytest.raises(ActionFailed, match="can't be kept"):
                await store.settle(key)
        await store.upload("later", _parts(), unfenced)
        await store.settle("later")


async def _parts() -> AsyncIterator[bytes]:
    yield b"a part"
