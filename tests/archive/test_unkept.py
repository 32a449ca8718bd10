"""A disk that did not keep what the store took says so once, to whoever had it open. Whatever dies then, no volume goes
for an archive that is not on the disk."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from temporalio.exceptions import ApplicationError

from adapters.s3.store import S3ArchiveStore
from adapters.transfer import flush
from domain.model import DesiredState, Phase
from domain.naming import archive_key, meta_key
from tests.archive.bench import Bench
from tests.faults.faulty import Faults, faulty

pytestmark = pytest.mark.docker


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """What the next flushes are answered."""
    answers: list[int] = []
    monkeypatch.setattr(flush, "syncfs", lambda _: answers.pop(0) if answers else 0)
    return lambda *given: answers.extend(given)


@asynccontextmanager
async def worker(bench: Bench, archives: S3ArchiveStore, folder: Path) -> AsyncIterator[tuple[Bench, Faults]]:
    """One that has just been started: it knows nothing of what a disk told its predecessor."""
    with flush.keeping(folder) as kept:
        store, faults = faulty(S3ArchiveStore(archives.client, archives.bucket, kept))
        yield bench.with_parts(archives=store), faults


def fill(home: Path) -> None:
    (home / "file").write_text("x" * 5000)


@pytest.mark.parametrize("restarted", [True, False], ids=["restarted", "same worker"])
async def test_what_a_disk_did_not_keep_is_uploaded_again(
    bench: Bench, archives: S3ArchiveStore, tmp_path: Path, disk: Callable[..., None], restarted: bool
) -> None:
    """Nothing vouches for bytes that are in memory only: the next attempt, by whichever worker, begins anew."""
    workspace, before = await bench.workspace(fill)
    step = await bench.claim(workspace, DesiredState.ARCHIVED)
    disk(-1)
    async with worker(bench, archives, tmp_path) as (first, faults):
        with pytest.raises(ApplicationError, match="can't be kept"):
            await first.attempt(workspace, step)
        assert await archives.read(meta_key(archive_key(workspace, step.op_id))) is None
        assert bench.home(workspace) == before
        if not restarted:
            assert await first.operate(workspace, step) is None
            assert faults.calls.count("upload") == 2
    async with worker(bench, archives, tmp_path) as (second, faults):
        if restarted:
            assert await second.operate(workspace, step) is None
            assert faults.calls.count("upload") == 1
        await second.drive(workspace, Phase.ARCHIVED)


async def test_a_meta_that_a_disk_did_not_keep_is_written_again(
    bench: Bench, archives: S3ArchiveStore, tmp_path: Path, disk: Callable[..., None]
) -> None:
    """The bytes were kept, its .meta was not, and the worker dies: the next one does not take it for kept because its
    own disk says nothing of it. Nor need the home be uploaded again."""
    workspace, before = await bench.workspace(fill)
    step = await bench.claim(workspace, DesiredState.ARCHIVED)
    disk(0, -1)
    async with worker(bench, archives, tmp_path) as (first, _):
        with pytest.raises(ApplicationError, match="can't be kept"):
            await first.attempt(workspace, step)
        assert bench.home(workspace) == before
    async with worker(bench, archives, tmp_path) as (second, faults):
        assert await second.operate(workspace, step) is None
        assert "upload" not in faults.calls
        assert faults.calls.index("replace") < faults.calls.index("settle")
