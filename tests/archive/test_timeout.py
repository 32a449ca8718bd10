"""PROMISE 19: an archiving that takes longer than its timeout ends as Timeout, and what is left of it harms nothing
that comes after it: each operation has an archive of its own, named by its archive_op_id."""

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.exceptions import ApplicationError

from activities.gc import GarbageCollector
from activities.integrity import is_intact, read_archive_meta
from adapters.postgres.garbage import Garbage
from adapters.s3.client import S3Config
from adapters.s3.store import S3ArchiveStore, open_store
from domain.model import DesiredState, ErrorReason, Operation, Phase, WorkspaceId
from domain.naming import archive_key
from settings import Settings
from tests.archive.bench import Bench
from tests.archive.test_zombies import Pause, Zombie
from tests.faults.proxy import FaultProxy
from workflows.messages import GcInput, Step

pytestmark = pytest.mark.docker

MIB = 1 << 20
Stuck = Callable[[FaultProxy], None]


def fill(home: Path) -> None:
    (home / "random").write_bytes(os.urandom(6 * MIB))


def silent(proxy: FaultProxy) -> None:
    proxy.cut_after(up=2 * MIB, then=proxy.black_hole)


def slow(proxy: FaultProxy) -> None:
    """Bytes move all the time: nothing but the timeout ends it."""
    proxy.throttle(up=MIB // 4, down=MIB // 4)


async def timed_out(bench: Bench, s3_config: S3Config, workspace: WorkspaceId, step: Step, stuck: Stuck) -> None:
    """The operation is given two seconds, on a store that is stuck from the middle of the upload on."""
    async with FaultProxy(s3_config.endpoint) as proxy:
        async with open_store(replace(s3_config, endpoint=proxy.url, timeout=1.0)) as store:
            other = replace(bench, archives=store)
            impatient = Settings(reconciler_archiving_timeout=2).timeouts
            reconciler = replace(other.operator.reconciler, timeouts=impatient)
            other.operator = replace(other.operator, reconciler=reconciler)
            stuck(proxy)
            assert await other.operate(workspace, step) is ErrorReason.TIMEOUT
        assert proxy.up > 0
    row = await bench.row(workspace)
    assert (row.phase, row.error_reason, row.archive_key) == (Phase.ERROR, ErrorReason.TIMEOUT, None)


async def archived_anew(bench: Bench, workspace: WorkspaceId, former: Step) -> str:
    """By another operation, under another key, once a person has recovered it."""
    await bench.recover(workspace)
    row = await bench.drive(workspace, Phase.ARCHIVED)
    assert row.archive_key
    assert row.archive_key != archive_key(workspace, former.op_id)
    return row.archive_key


@pytest.mark.parametrize("stuck", [silent, slow])
async def test_an_archiving_that_takes_too_long(
    bench: Bench, archives: S3ArchiveStore, s3_config: S3Config, stuck: Stuck
) -> None:
    """Timeout, at the first attempt. The home is untouched; an upload is ended at once where the store answers, else by
    GC; recovered, it is archived and comes back."""
    workspace, before = await bench.workspace(fill)
    step = await bench.claim(workspace, DesiredState.ARCHIVED)
    await timed_out(bench, s3_config, workspace, step, stuck)
    assert bench.home(workspace) == before
    left = [upload.key async for upload in archives.list_uploads()]
    assert left == ([archive_key(workspace, step.op_id)] if stuck is silent else [])
    # A delay that is over for what was begun just now.
    gc = GarbageCollector(Garbage(bench.database), archives, bench.installation, delay=timedelta(minutes=-1))
    await gc.collect(GcInput())
    assert [upload async for upload in archives.list_uploads()] == []
    await archived_anew(bench, workspace, step)
    await bench.want(workspace, DesiredState.STANDBY)
    await bench.drive(workspace, Phase.STANDBY)
    assert bench.home(workspace) == before


@pytest.mark.parametrize(
    "pause",
    [
        Pause("archives", "upload"),
        Pause("store", "is_current", 1, after=True),
        Pause("archives", "replace"),
        Pause("store", "save_archive_key"),
    ],
    ids=str,
)
async def test_a_zombie_of_what_timed_out_leaves_the_new_archive_alone(
    bench: Bench, archives: S3ArchiveStore, s3_config: S3Config, pause: Pause
) -> None:
    """It fell silent, the next attempt ran into the timeout, a person recovered the workspace, and another operation
    has archived the home. Then it goes on where it stood: the archive that counts is neither written over nor removed.
    """
    workspace, before = await bench.workspace(fill)
    step = await bench.claim(workspace, DesiredState.ARCHIVED)
    assert step.operation is Operation.ARCHIVING
    zombie = Zombie(bench, pause, direct=True)
    await zombie.begin(workspace, step)
    await timed_out(bench, s3_config, workspace, step, slow)
    key = await archived_anew(bench, workspace, step)
    row, stored = await bench.row(workspace), await archives.look(key)
    ended = await zombie.wake()
    assert isinstance(ended, ApplicationError)
    assert ended.type == "Superseded"
    assert replace(await bench.row(workspace), updated_at=row.updated_at) == row
    assert await archives.look(key) == stored
    assert await is_intact(archives, key, await read_archive_meta(archives, workspace, key))
    assert [upload async for upload in archives.list_uploads()] == []
    assert not bench.volumes.exists(workspace)
    await bench.want(workspace, DesiredState.STANDBY)
    await bench.drive(workspace, Phase.STANDBY)
    assert bench.home(workspace) == before
