"""PROMISE 18: a tar stream that breaks off never becomes an archive."""

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from activities.bucket import OWNER_KEY
from adapters.homes import Homes, HomeStream
from adapters.s3.store import S3ArchiveStore
from adapters.transfer.proctar import ProcessTar
from domain.model import DesiredState, ErrorReason, Phase, WorkspaceId
from tests.archive.bench import Bench

pytestmark = pytest.mark.docker

MIB = 1 << 20


class Stream:
    """A home's stream with something done to it on the way."""

    def __init__(self, inner: HomeStream, change: Callable[[HomeStream], Iterator[bytes]]) -> None:
        self.total = inner.total
        self.sockets = 0
        self._inner = inner
        self._change = change

    def __iter__(self) -> Iterator[bytes]:
        return self._change(self._inner)


class Breaking:
    """Homes whose first streams are broken, and then whole again."""

    def __init__(self, inner: Homes, change: Callable[[HomeStream], Iterator[bytes]], times: int) -> None:
        self._inner = inner
        self._change = change
        self._times = times
        self.remove, self.renew, self.write = inner.remove, inner.renew, inner.write
        self.ensure_unused = inner.ensure_unused

    @asynccontextmanager
    async def read(self, workspace_id: WorkspaceId) -> AsyncIterator[HomeStream]:
        async with self._inner.read(workspace_id) as stream:
            self._times -= 1
            yield stream if self._times < 0 else Stream(stream, self._change)


def breaking(bench: Bench, change: Callable[[HomeStream], Iterator[bytes]], times: int) -> Bench:
    return bench.with_parts(homes=Breaking(bench.homes, change, times))


def fill(home: Path) -> None:
    for number in range(6):
        (home / f"random-{number}").write_bytes(os.urandom(MIB))


def cut_at(end: int) -> Callable[[HomeStream], Iterator[bytes]]:
    """It just ends, as a connection does that is closed politely."""

    def change(stream: HomeStream) -> Iterator[bytes]:
        left = end
        for chunk in stream:
            yield chunk[:left]
            left -= len(chunk)
            if left <= 0:
                return

    return change


def killed(stream: HomeStream) -> Iterator[bytes]:
    for number, chunk in enumerate(stream):
        if number == 1:
            assert isinstance(stream, ProcessTar)
            stream._tar.kill()
        yield chunk


async def nothing_is_stored(archives: S3ArchiveStore) -> None:
    assert [found.key async for found in archives.list_objects() if found.key != OWNER_KEY] == []
    assert [upload async for upload in archives.list_uploads()] == []


@pytest.mark.parametrize("end", [0, 512, 3 * MIB, 3 * MIB + 100, 6 * MIB])
async def test_a_stream_that_ends_early_is_never_stored(bench: Bench, archives: S3ArchiveStore, end: int) -> None:
    """Without an error of its own: only the missing end-of-archive marker tells. Then ERROR, and the home is kept."""
    workspace, before = await bench.workspace(fill)
    step = await bench.claim(workspace, DesiredState.ARCHIVED)
    assert await breaking(bench, cut_at(end), 3).operate(workspace, step) is ErrorReason.ACTION_FAILED
    assert (await bench.row(workspace)).archive_key is None
    await nothing_is_stored(archives)
    assert bench.home(workspace) == before


async def test_a_tar_that_is_killed_is_tried_again(bench: Bench, archives: S3ArchiveStore) -> None:
    """Twice, in the middle. The third one runs through, and all of the home is in the archive."""
    workspace, before = await bench.workspace(fill)
    step = await bench.claim(workspace, DesiredState.ARCHIVED)
    assert await breaking(bench, killed, 2).operate(workspace, step) is None
    await bench.want(workspace, DesiredState.STANDBY)
    await bench.drive(workspace, Phase.STANDBY)
    assert bench.home(workspace) == before


async def test_a_tar_that_is_always_killed_leaves_the_home(bench: Bench, archives: S3ArchiveStore) -> None:
    workspace, before = await bench.workspace(fill)
    step = await bench.claim(workspace, DesiredState.ARCHIVED)
    assert await breaking(bench, killed, 3).operate(workspace, step) is ErrorReason.ACTION_FAILED
    await nothing_is_stored(archives)
    assert bench.home(workspace) == before


async def test_a_tree_that_could_not_be_restored_is_refused_with_a_reason(bench: Bench) -> None:
    """Deeper than paths can be: the home stays where it is, and a person is told why."""

    def deep(home: Path) -> None:
        fd = os.open(home, os.O_RDONLY)
        for _ in range(38):
            os.mkdir("d" * 100, dir_fd=fd)
            inner = os.open("d" * 100, os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd = inner
        os.close(fd)

    workspace, _ = await bench.workspace(deep)
    step = await bench.claim(workspace, DesiredState.ARCHIVED)
    assert await bench.operate(workspace, step) is ErrorReason.ACTION_FAILED
    message = await bench.database.fetchval("SELECT error_message FROM operations WHERE id = $1", step.op_id)
    assert "path" in message
    assert bench.volumes.exists(workspace)
