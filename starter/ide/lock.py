"""One build at a time in one cache."""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from starter.embedded.errors import EmbeddedError

POLL_SECONDS = 0.2


@contextlib.asynccontextmanager
async def alone(cache: Path, step: Callable[[str], None]) -> AsyncIterator[None]:
    """Two processes make one image once. The kernel lets go of the lock when its holder dies, however it dies."""
    handle = _open(cache)
    try:
        while not _locked(handle):
            step("another process makes the image: waiting for it")
            await asyncio.sleep(POLL_SECONDS)
        yield
    finally:
        # The file stays: removing it would let two processes lock two files of one name.
        os.close(handle)


def _open(cache: Path) -> int:
    try:
        cache.mkdir(parents=True, exist_ok=True)
        return os.open(cache / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise EmbeddedError(f"Can't write to {cache} ({error.strerror}): it is to keep the IDE image.") from error


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
