"""PROMISE 14: worker and helper die together, in the middle of writing a home.

The helper of a worker that reaches the volume itself is its `tar`; else it is a container that never runs, in which
`docker kill` finds nothing. So what dies is whatever the engine extracts with, where that is a process of its own; and
the container is removed by force, as soon as the engine lets it go: it does not while somebody still sends.
"""

import os
import random
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from docker.errors import NotFound

from domain.model import DesiredState, Operation, Phase, WorkspaceId
from domain.naming import volume_name
from tests.archive.kept import holds
from tests.archive.scene import Scene, watched
from tests.archive.trees import bytes_in, grow
from tests.processes.deployment import AT_REST
from tests.processes.process import until

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]

MIB = 1 << 20
PART, FILES, SIZE_OF_EACH = 2 * MIB, 4, 3 * MIB
FEW = 3
"""Mounts of a process that is shut into a container."""
MADE_BY_THE_IMAGE = {b"cgi-bin"}


@pytest.mark.parametrize(
    "direct", [pytest.param(False, id="engine"), pytest.param(True, id="direct", marks=pytest.mark.full)]
)
async def test_worker_and_helper_killed_together(scene: Scene, test_image: str, direct: bool) -> None:
    """Neither sees the other one die. What is there is no home; another worker starts over, and all is as it was."""
    homes, worker, volumes = scene.homes, scene.worker, scene.homes.bench.volumes
    await scene.make(1, _fill, archived=1)
    ((workspace, before),) = homes.truth.items()
    await homes.bench.database.execute("UPDATE workspaces SET image_ref = $1", test_image)
    scene.store.throttle(down=4 * MIB)
    mode = {"HOMES_DIRECT": "1" if direct else "0"}
    async with watched(homes):
        await homes.want(workspace, DesiredState.RUNNING)
        await worker.start(**mode)
        await _a_part_is_written(scene, workspace)
        worker.pause()
        processes = _tar_of(worker.pid) if direct else _extracting(workspace)
        for process in processes:
            os.kill(process, signal.SIGKILL)
        worker.kill()
        if direct:
            assert processes
        else:
            volumes.api.remove_container(f"{volume_name(workspace)}-io", force=True)
        row = await homes.bench.row(workspace)
        assert (row.phase, row.operation) == (Phase.ARCHIVED, Operation.RESTORING)
        assert row.home_ctx.restoring == row.archive_key
        assert PART < bytes_in(volumes.path(workspace)) < FILES * SIZE_OF_EACH
        await homes.nothing_is_lost()
        scene.store.throttle()
        await worker.start(**mode)
        await homes.until(Phase.RUNNING)
    assert homes.lost == []
    assert holds(volumes.path(workspace), before)
    assert homes.bench.home(workspace).keys() - before.keys() <= MADE_BY_THE_IMAGE


async def _a_part_is_written(scene: Scene, workspace: WorkspaceId) -> None:
    async def is_written() -> bool:
        with suppress(NotFound):
            return bytes_in(scene.homes.bench.volumes.path(workspace)) > PART
        return False

    await until(is_written, AT_REST, "nothing is written")


def _tar_of(worker: int) -> list[int]:
    return [pid for pid, parent, command in _processes() if parent == worker and command == "tar"]


def _extracting(workspace: WorkspaceId) -> list[int]:
    """Processes of the engine that see this volume and hardly anything else: one that has just begun sees all that the
    engine does, and may be anybody's. Newer engines have none: a thread does it."""
    found = []
    for pid, _, command in _processes():
        with suppress(OSError):
            seen = Path(f"/proc/{pid}/mountinfo").read_text()
            if command == "docker-untar" and volume_name(workspace) in seen and seen.count("\n") <= FEW:
                found.append(pid)
    return found


def _processes() -> Iterator[tuple[int, int, str]]:
    """Their parents, and what they are called."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            called = (folder / "cmdline").read_bytes().partition(b"\0")[0]
            yield int(folder.name), parent, os.fsdecode(os.path.basename(called))


def _fill(seed: int, home: Path) -> None:
    """With times of whole seconds: an engine keeps no others."""
    grow(home, seed, entries=12, largest=20_000)
    for number in range(FILES):
        (home / f"random-{number}").write_bytes(random.Random(number).randbytes(SIZE_OF_EACH))
    home.chmod(0o755)
    for folder, folders, files in os.walk(os.fsencode(home), topdown=False):
        for path in (os.path.join(folder, name) for name in [*folders, *files, b""]):
            os.utime(path, ns=(0, os.lstat(path).st_mtime_ns // 10**9 * 10**9), follow_symlinks=False)
