"""PROMISES 5 and 6 for archive and restore: each call fails before or after its effect, and each attempt runs twice;
it ends where the fault-free run ends."""

from itertools import chain, zip_longest

import pytest

from activities.integrity import is_intact, read_archive_meta
from adapters.postgres.database import DatabaseUnavailable
from adapters.s3.store import S3ArchiveStore
from domain.errors import ActionFailed, Unreachable
from domain.model import DesiredState, ErrorReason, HomeContext, Operation, Phase, WorkspaceId
from tests.archive.bench import Bench
from tests.archive.trees import Snapshot, grow
from tests.faults.faulty import Faults, faulty

pytestmark = pytest.mark.docker

ARCHIVING = {
    "archives": ["look", "upload", "replace", "size", "download"],
    "homes": ["read", "ensure_unused", "remove"],
    "store": ["begin_attempt", "is_current", "save_archive_key", "save_removing", "save"],
}
RESTORING = {
    "archives": ["read", "size", "download"],
    "homes": ["renew", "write"],
    "runtime": ["stop"],
    "store": ["begin_attempt", "is_current", "save_restore_marker", "save"],
}
ERRORS = {
    "archives": Unreachable("made to fail"),
    "homes": Unreachable("made to fail"),
    "runtime": ActionFailed("made to fail"),
    "store": DatabaseUnavailable("made to fail"),
}


def failing(bench: Bench, part: str, method: str, *, after: bool) -> tuple[Bench, Faults]:
    faults = Faults()
    faults.fail(method, ERRORS[part], after=after)
    parts = {"archives": bench.archives, "homes": bench.homes, "runtime": bench.runtime, "store": bench.store}
    broken = {part: faulty(parts[part], faults)[0]}
    return bench.with_parts(**broken), faults  # type: ignore[arg-type]


async def archived_right(bench: Bench, archives: S3ArchiveStore, workspace: WorkspaceId) -> None:
    row = await bench.row(workspace)
    assert (row.phase, row.operation, row.error_count, row.error_reason) == (Phase.ARCHIVED, Operation.NONE, 0, None)
    assert not bench.volumes.exists(workspace)
    key = row.archive_key or ""
    assert await is_intact(archives, key, await read_archive_meta(archives, workspace, key))
    assert [upload async for upload in archives.list_uploads()] == []


async def restored_right(bench: Bench, workspace: WorkspaceId, before: Snapshot) -> None:
    row = await bench.row(workspace)
    assert (row.phase, row.operation, row.error_count, row.error_reason) == (Phase.STANDBY, Operation.NONE, 0, None)
    assert row.home_ctx == HomeContext(restore_marker=row.archive_key)
    assert bench.home(workspace) == before
    assert bench.volumes.holders(workspace) == []


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_every_call_of_archive_and_restore_may_fail_once(
    bench: Bench, archives: S3ArchiveStore, after: bool
) -> None:
    """Not done, or done and the answer lost: the next attempt ends where a run without faults ends."""
    workspace, before = await bench.workspace(lambda home: grow(home, 21, entries=6, largest=2000))
    there = [(True, part, method) for part, methods in ARCHIVING.items() for method in methods]
    back = [(False, part, method) for part, methods in RESTORING.items() for method in methods]
    turns = zip_longest(there, back, fillvalue=(False, "archives", "read"))
    for archiving, part, method in chain.from_iterable(turns):
        broken, faults = failing(bench, part, method, after=after)
        desired = DesiredState.ARCHIVED if archiving else DesiredState.STANDBY
        step = await bench.claim(workspace, desired)
        assert await broken.operate(workspace, step) is None, (part, method)
        assert method in faults.calls
        if archiving:
            await archived_right(bench, archives, workspace)
        else:
            await restored_right(bench, workspace, before)


async def test_every_attempt_may_run_again(bench: Bench, archives: S3ArchiveStore) -> None:
    """After it is done, too: the answer of an activity can be lost."""
    workspace, before = await bench.workspace(lambda home: grow(home, 22, entries=6, largest=2000))
    step = await bench.claim(workspace, DesiredState.ARCHIVED)
    for _ in range(2):
        await bench.attempt(workspace, step)
        await archived_right(bench, archives, workspace)
    step = await bench.claim(workspace, DesiredState.STANDBY)
    for _ in range(2):
        await bench.attempt(workspace, step)
        await restored_right(bench, workspace, before)


async def test_creating_an_empty_archive_may_fail_anywhere(bench: Bench, archives: S3ArchiveStore) -> None:
    for after in (False, True):
        for part, method in [("archives", m) for m in ARCHIVING["archives"]] + [("store", "save_archive_key")]:
            broken, _ = failing(bench, part, method, after=after)
            workspace = await bench.empty_workspace()
            step = await bench.claim(workspace, DesiredState.ARCHIVED)
            assert step.operation is Operation.CREATE_EMPTY_ARCHIVE
            assert await broken.operate(workspace, step) is None
            await archived_right(bench, archives, workspace)


async def test_a_container_that_appeared_meanwhile_keeps_the_volume(bench: Bench, test_image: str) -> None:
    """What it wrote after the home was read is in no archive: the volume stays, and the operation fails."""
    workspace, _ = await bench.workspace()
    step = await bench.claim(workspace, DesiredState.ARCHIVED)
    watched, faults = faulty(bench.archives)

    async def appear() -> None:
        """Whoever verifies has read the home."""
        await bench.runtime.start(workspace, test_image, step.op_id)
        (bench.volumes.path(workspace) / "late").write_text("written after the home was read")

    faults.watch("download", appear)
    assert await bench.with_parts(archives=watched).operate(workspace, step) is not None
    assert (bench.volumes.path(workspace) / "late").exists()
    await bench.runtime.stop(workspace)
    await bench.recover(workspace)
    await bench.drive(workspace, Phase.ARCHIVED)
    await bench.want(workspace, DesiredState.STANDBY)
    await bench.drive(workspace, Phase.STANDBY)
    assert (bench.volumes.path(workspace) / "late").exists()


async def test_a_container_that_came_and_went_meanwhile_loses_nothing(bench: Bench, test_image: str) -> None:
    """Gone again before the next attempt: what it wrote is read by that one, into an archive of its own."""
    workspace, _ = await bench.workspace()
    step = await bench.claim(workspace, DesiredState.ARCHIVED)
    archives, stored = faulty(bench.archives)
    store, counted = faulty(bench.store)

    async def appear() -> None:
        if not (bench.volumes.path(workspace) / "late").exists():
            await bench.runtime.start(workspace, test_image, step.op_id)
            (bench.volumes.path(workspace) / "late").write_text("written after the home was read")

    async def go() -> None:
        await bench.runtime.stop(workspace)

    stored.watch("download", appear)
    counted.watch("count_error", go)
    assert await bench.with_parts(archives=archives, store=store).operate(workspace, step) is None
    row = await bench.row(workspace)
    assert row.phase is Phase.ARCHIVED
    await bench.want(workspace, DesiredState.STANDBY)
    await bench.drive(workspace, Phase.STANDBY)
    assert (bench.volumes.path(workspace) / "late").exists()


async def test_a_worker_that_dies_when_it_has_heard_of_a_container_loses_nothing(bench: Bench, test_image: str) -> None:
    """Before it could say that the home has to be read again. The next attempt hears of the container, too, and says
    so; the one after it, when the container is gone, reads what it wrote."""
    workspace, _ = await bench.workspace()
    step = await bench.claim(workspace, DesiredState.ARCHIVED)
    archives, stored = faulty(bench.archives)
    store, counted = faulty(bench.store)

    async def appear() -> None:
        if not (bench.volumes.path(workspace) / "late").exists():
            await bench.runtime.start(workspace, test_image, step.op_id)
            (bench.volumes.path(workspace) / "late").write_text("written after the home was read")

    async def go() -> None:
        await bench.runtime.stop(workspace)

    stored.watch("download", appear)
    counted.fail("save_not_removed", DatabaseUnavailable("died"))
    counted.watch("count_error", go)
    assert await bench.with_parts(archives=archives, store=store).operate(workspace, step) is None
    assert counted.calls.count("count_error") == 1
    await bench.want(workspace, DesiredState.STANDBY)
    await bench.drive(workspace, Phase.STANDBY)
    assert (bench.volumes.path(workspace) / "late").exists()


async def test_a_container_that_comes_right_before_the_removal_keeps_the_volume(bench: Bench, test_image: str) -> None:
    """When nobody held it any more, and it was said to go: the engine refuses, and that is taken back."""
    workspace, _ = await bench.workspace()
    step = await bench.claim(workspace, DesiredState.ARCHIVED)
    store, saved = faulty(bench.store)

    async def appear() -> None:
        if not (bench.volumes.path(workspace) / "late").exists():
            await bench.runtime.start(workspace, test_image, step.op_id)
            (bench.volumes.path(workspace) / "late").write_text("written after the home was read")

    async def go() -> None:
        await bench.runtime.stop(workspace)

    saved.watch("save_removing", appear, after=True)
    saved.watch("count_error", go)
    assert await bench.with_parts(store=store).operate(workspace, step) is None
    assert saved.calls.count("save_not_removed") == 1
    await bench.want(workspace, DesiredState.STANDBY)
    await bench.drive(workspace, Phase.STANDBY)
    assert (bench.volumes.path(workspace) / "late").exists()


async def test_a_volume_that_was_in_use_and_then_vanished_is_lost(bench: Bench, test_image: str) -> None:
    """The archive was made before a container wrote to it: it does not stand for the volume."""
    workspace, _ = await bench.workspace()
    step = await bench.claim(workspace, DesiredState.ARCHIVED)
    archives, stored = faulty(bench.archives)

    async def appear() -> None:
        await bench.runtime.start(workspace, test_image, step.op_id)

    stored.watch("download", appear)
    assert await bench.with_parts(archives=archives).operate(workspace, step) is ErrorReason.ACTION_FAILED
    await bench.runtime.stop(workspace)
    bench.volumes.forget(workspace)
    await bench.operator.reconciler.step(workspace)
    assert (await bench.row(workspace)).error_reason is ErrorReason.DATA_LOST


async def test_a_dead_workers_container_does_not_keep_a_volume(bench: Bench, archives: S3ArchiveStore) -> None:
    """Killed while it read through the engine, after the archive was committed: the retry removes the volume."""
    homes = bench.volumes.runtime.homes(direct=False)
    workspace, _ = await bench.workspace()
    step = await bench.claim(workspace, DesiredState.ARCHIVED)
    broken, faults = faulty(bench.archives)
    faults.fail("size", ConnectionAbortedError("killed"))
    other = bench.with_parts(archives=broken, homes=homes)
    with pytest.raises(Exception, match="ConnectionAborted"):
        await other.attempt(workspace, step)
    await homes._create(workspace, step.op_id)
    assert await bench.operate(workspace, step) is None
    await archived_right(bench, archives, workspace)


async def test_a_dead_workers_container_does_not_keep_a_workspace_from_being_deleted(bench: Bench) -> None:
    """Killed in RESTORING, then the store is away until the operation fails: deleting must still work."""
    workspace, _ = await bench.workspace()
    await bench.volumes.runtime.homes()._create(workspace, (await bench.claim(workspace, DesiredState.ARCHIVED)).op_id)
    await bench.runtime.stop(workspace)
    await bench.runtime.remove_volume(workspace)
    assert not bench.volumes.exists(workspace)
