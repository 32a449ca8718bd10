"""What was written, onto the disk: else a machine that loses power keeps the names of files and not their bytes."""

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from domain.errors import ActionFailed

_INTERVAL = 0.25
"""Seconds. What is flushed while the next bytes are on their way need not be waited for at the end."""
_LIBC = ctypes.CDLL(None, use_errno=True)


def flush(directory: Path) -> None:
    """All of its file system, and only that. Blocks."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if not hasattr(_LIBC, "syncfs"):
            os.sync()
        elif _LIBC.syncfs(descriptor) != 0:
            raise ActionFailed(f"what was written can't be kept: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def flushing(directory: Path) -> Iterator[Callable[[], None]]:
    """Inside, what is written is flushed meanwhile, so that little is left for the end: that is what the yielded call
    does. It blocks for as long as the disk takes, and nobody sees it move."""
    over = threading.Event()

    def ahead() -> None:
        while not over.wait(_INTERVAL):
            # What fails here fails at the end, too, and is told there.
            with contextlib.suppress(OSError, ActionFailed):
                flush(directory)

    thread = threading.Thread(target=ahead, name="flush", daemon=True)
    thread.start()

    def rest() -> None:
        over.set()
        thread.join()
        flush(directory)

    try:
        yield rest
    finally:
        # Not waited for: what failed is not kept.
        over.set()
