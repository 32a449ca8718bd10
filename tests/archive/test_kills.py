"""PROMISES 13 and 14: kill -9 of the worker at every named point and at any moment of ARCHIVING and RESTORING loses
nothing, and no workspace is ever STANDBY or RUNNING on a partial home.

CI: 9 kills at named points with 3 workspaces each, and random moments until 3 kills have struck each of the two. Full:
until 201 have, in three tests that can run side by side, and 30 with homes that the engine reads and writes.
"""

import asyncio
import os
import random
import time
from pathlib import Path

import pytest

from domain.model import DesiredState, Operation, Phase
from tests import report
from tests.archive.kept import KeptHomes
from tests.archive.scene import Scene, watched
from tests.archive.trees import grow
from tests.faults.crashing import CrashingWorker

pytestmark = [pytest.mark.docker, pytest.mark.timeout(400)]

MIB = 1 << 20
ARCHIVING_POINTS = [
    "archive_uploaded",
    "archive_committed",
    "archive_verified",
    "archive_key_saved",
    "archive_removal_said",
    "archive_volume_removed",
]
RESTORING_POINTS = ["restore_renewed", "restore_extracted", "restore_marked"]
OPERATIONS = (Operation.ARCHIVING, Operation.RESTORING)
ENGINE = "engine"
"""The lane in which the engine reads and writes the homes, as for a worker in a container."""
FULL = [pytest.mark.full, pytest.mark.timeout(7200)]


async def test_a_kill_at_every_named_point_loses_nothing(scene: Scene, test_image: str) -> None:
    """One after the other in the same operation: each worker dies at the next point, the one after it goes on."""
    homes, worker = scene.homes, scene.worker
    await scene.make(3, _fill)
    await homes.bench.database.execute("UPDATE workspaces SET image_ref = $1", test_image)
    async with watched(homes):
        for workspace in homes.truth:
            await homes.want(workspace, DesiredState.ARCHIVED)
        for point in ARCHIVING_POINTS:
            await worker.start(point)
            await worker.until_dead()
            await homes.nothing_is_lost()
        await worker.start(RESTORING_POINTS[0])
        await homes.until(Phase.ARCHIVED)
        await homes.nothing_is_lost()
        for workspace in homes.truth:
            await homes.want(workspace, DesiredState.RUNNING)
        for point in [*RESTORING_POINTS[1:], ""]:
            await worker.until_dead()
            await homes.nothing_is_lost()
            await worker.start(point)
        await homes.until(Phase.RUNNING)
    await homes.nothing_is_lost()
    assert worker.kills == len(ARCHIVING_POINTS) + len(RESTORING_POINTS)
    assert [upload async for upload in homes.archives.list_uploads()] == []


@pytest.mark.parametrize(
    ("kills", "lane"),
    [
        (3, "ci"),
        *(pytest.param(67, lane, marks=FULL) for lane in ("1", "2", "3")),
        pytest.param(30, ENGINE, marks=FULL),
    ],
)
async def test_kills_at_random_moments_lose_nothing(scene: Scene, test_image: str, kills: int, lane: str) -> None:
    """Homes on their way there and back at the same time, half of them as far as RUNNING, until that many kills have
    struck operations of each kind in the middle."""
    homes, worker = scene.homes, scene.worker
    chance = random.Random(f"{lane} {kills}")
    began = time.monotonic()
    await scene.make(6, _fill, archived=3)
    await homes.bench.database.execute("UPDATE workspaces SET image_ref = $1", test_image)
    homes.run = set(list(homes.truth)[::2])
    mode = {"HOMES_DIRECT": "0" if lane == ENGINE else "1"}
    # A transfer that takes a moment, so that most kills fall into one.
    scene.store.throttle(up=1.5 * MIB, down=3 * MIB)
    async with watched(homes):
        await worker.start(**mode)
        usual = await _there_and_back(homes)
        worker.kill()
        await homes.struck()
        while min(homes.kills[operation] for operation in OPERATIONS) < kills:
            await worker.start(**mode)
            await homes.turn()
            fewest = min(OPERATIONS, key=lambda operation: homes.kills[operation])
            async with asyncio.timeout(180):
                while fewest not in (await homes.begun()).values():
                    await asyncio.sleep(0.05)
                    await homes.turn()
            # As long as it takes this machine, so that every stage has its share. A restore is the shorter half of it.
            await asyncio.sleep(chance.uniform(0, usual if fewest is Operation.ARCHIVING else usual / 3))
            worker.kill()
            try:
                await homes.struck()
            finally:
                _keep(lane, homes, worker, began)
        await worker.start(**mode)
        await homes.until_at_rest()
    worker.kill()
    assert homes.seen_running
    await homes.nothing_is_lost()
    _keep(lane, homes, worker, began, done=True)
    # None of an operation that was completed: the attempt that completed it has ended them.
    assert [upload async for upload in homes.archives.list_uploads()] == []


async def _there_and_back(homes: KeptHomes) -> float:
    """How long the operations take when nobody is killed."""
    began = time.monotonic()
    await homes.turn()
    await homes.until_at_rest()
    return time.monotonic() - began


def _keep(lane: str, homes: KeptHomes, worker: CrashingWorker, began: float, *, done: bool = False) -> None:
    """After each kill: a run that is stopped has found out something, too."""
    report.save(
        f"archive-kills-{lane}",
        {
            "done": done,
            "workspaces": len(homes.truth),
            "killed": worker.kills,
            "kills": dict(homes.kills),
            "stages": [[*stage, count] for stage, count in homes.stages.items()],
            "lost": homes.lost,
            "seconds": round(time.monotonic() - began),
        },
    )


def _fill(seed: int, home: Path) -> None:
    grow(home, seed, entries=12, largest=20_000)
    (home / "random").write_bytes(random.Random(seed).randbytes(2 * MIB))
    # So that a workspace can run on it.
    home.chmod(0o755)
    # In whole seconds, which is what the engine's tars keep.
    for path in sorted(home.rglob("*"), reverse=True):
        os.utime(path, ns=(0, 10**18), follow_symlinks=False)
