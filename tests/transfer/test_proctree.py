"""Extraction by `tar` in a root of its own: what it does where it can't go on, and what it leaves behind."""

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.transfer.proctree import CantEnter, ProcessTree
from domain.errors import ActionFailed
from tests.transfer.tars import END, gnu_tar, header

MIB = 1 << 20


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "volume"
    made.mkdir()
    return made


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def a_file(name: bytes, size: int) -> Iterator[bytes]:
    yield header(name, b"0", b"%011o" % size)
    for _ in range(size // MIB):
        yield bytes(MIB)
    yield END


def test_a_full_disk_is_said(small_disk: Path) -> None:
    """So that a person knows what to do."""
    with ProcessTree(small_disk, "home") as tree, pytest.raises(ActionFailed, match="no space left on device"):
        tree.extract(a_file(b"home/big", 8 * MIB))


def test_a_directory_that_takes_its_place_is_not_written_to(home: Path) -> None:
    """A volume that was removed and made again has the same path, and is another one."""
    with ProcessTree(home, "home") as tree:
        home.rename(home.with_name("old"))
        home.mkdir()
        tree.extract(a_file(b"home/file", MIB))
    assert os.listdir(home) == []
    assert os.listdir(home.with_name("old")) == ["file"]


def test_a_directory_that_is_gone_is_refused(home: Path) -> None:
    """Nothing is made in the place where it was."""
    with ProcessTree(home, "home") as tree:
        home.rmdir()
        with pytest.raises(ActionFailed):
            tree.extract(a_file(b"home/file", MIB))
    assert not home.exists()


def test_nothing_beside_the_home_is_written(home: Path, tmp_path: Path) -> None:
    """The root around it is for reading only."""
    with ProcessTree(home, "home") as tree, pytest.raises(ActionFailed):
        tree.extract(a_file(b"usr/bin/tar", MIB))
    with ProcessTree(home, "home") as tree, pytest.raises(ActionFailed):
        tree.extract(a_file(b"elsewhere", MIB))
    assert os.listdir(home) == []


def test_the_machine_sees_none_of_its_mounts(home: Path, tmp_path: Path) -> None:
    """Not while it runs, and not afterwards; nor is a file left anywhere."""

    def mounts() -> set[str]:
        lines = Path("/proc/self/mounts").read_text().splitlines()
        # An engine's come and go with the containers of other tests, and small disks with those that need one.
        others = ("/docker/", "/netns/", "/pytest-of-")
        return {line for line in lines if str(tmp_path) in line or not any(other in line for other in others)}

    before, files = mounts(), set(os.listdir("/tmp"))
    with ProcessTree(home, "home"):
        assert mounts() == before
    # Neither what it makes in its root nor a root; a store of another test keeps its log there, with its user's name.
    left = {name for name in set(os.listdir("/tmp")) - files if not name.startswith("weed.")}
    assert {name for name in left if "root" in name or name in {"home", "usr", "bin", "sbin", "lib", "lib64"}} == set()


def test_whoever_gives_up_wakes_the_one_that_waits(home: Path) -> None:
    """A stream that stands still: closing it ends tar and the thread that writes to it."""
    release = threading.Event()

    def stuck() -> Iterator[bytes]:
        yield header(b"home/file", b"0", b"%011o" % MIB)
        release.wait(30)
        while True:
            yield bytes(MIB)

    ended: list[BaseException] = []

    def run(tree: ProcessTree) -> None:
        try:
            tree.extract(stuck())
        except ActionFailed as error:
            ended.append(error)

    with ProcessTree(home, "home") as tree:
        thread = threading.Thread(target=run, args=(tree,))
        thread.start()
    release.set()
    thread.join(30)
    assert not thread.is_alive()
    assert len(ended) == 1


def test_a_directory_is_extracted_as_it_was(home: Path, tmp_path: Path) -> None:
    """The top directory itself, too."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "file").write_text("x")
    source.chmod(0o711)
    os.utime(source, ns=(0, 10**18 + 5))
    tar = gnu_tar(source, "--format=posix", "--transform=flags=rhS;s,^[.],home,")
    with ProcessTree(home, "home") as tree:
        tree.extract([tar])
    assert (home.stat().st_mode & 0o777, home.stat().st_mtime_ns) == (0o711, 10**18 + 5)


def test_without_the_programs_somebody_else_has_to_do_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(home))
    with pytest.raises(CantEnter):
        ProcessTree(home, "home")
