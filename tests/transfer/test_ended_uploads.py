"""Uploads that somebody else ends: on purpose, because they were given up, or by mistake."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from adapters.s3.store import S3ArchiveStore
from domain.errors import Unreachable

KEY = "workspace/operation/home.tar.zst"


class Late(Exception):
    """Of an attempt that was superseded."""


async def part() -> AsyncIterator[bytes]:
    yield b"a part"


async def nothing() -> None:
    """A fence that nobody has overtaken."""


async def test_whoever_was_frozen_behind_its_fence_ends_no_upload_that_is_under_way(archives: S3ArchiveStore) -> None:
    """It wakes up when the attempt that has taken over is in the middle of its own: that one goes on."""
    asked, awake = asyncio.Event(), asyncio.Event()

    async def frozen() -> None:
        if awake.is_set():
            raise Late
        asked.set()
        await awake.wait()

    async def later() -> AsyncIterator[bytes]:
        yield b"a part"
        awake.set()
        with pytest.raises(Late):
            await zombie

    zombie = asyncio.create_task(archives.upload(KEY, part(), frozen))
    await asked.wait()
    await archives.upload(KEY, later(), nothing)
    assert await archives.size(KEY) == len(b"a part")
    assert [upload async for upload in archives.list_uploads()] == []


@pytest.mark.parametrize("superseded", [False, True])
async def test_an_upload_that_somebody_ended_is_no_fault_of_the_workspace(
    archives: S3ArchiveStore, superseded: bool
) -> None:
    """The attempt can begin anew, unless it was superseded: then that is what it is told."""
    ended = False

    async def fence() -> None:
        if ended and superseded:
            raise Late

    async def cut() -> AsyncIterator[bytes]:
        nonlocal ended
        async for upload in archives.list_uploads():
            await archives.abort(upload)
            ended = True
        yield b"a part"

    with pytest.raises(Late if superseded else Unreachable):
        await archives.upload(KEY, cut(), fence)
    assert ended
    assert await archives.size(KEY) is None
