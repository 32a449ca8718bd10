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
LIBC = ctypes.CDLL(None, use_errno=True)


def syncfs(descriptor: int) -> int:
    if hasattr(LIBC, "syncfs"):
        return int(LIBC.syncfs(descriptor))
    os.sync()
    return 0


class _Disk:
    """A file system that somebody writes to.

    The kernel flushes one after the other, however many ask: so whoever asks while one is under way shares the next.
    It tells of bytes that it could not keep once for each descriptor that was open then, and never one that is opened
    later: so one stays open for as long as anybody writes, and what it was told is told to all of them.
    """

    def __init__(self, number: int, directory: Path) -> None:
        self.number = number
        self.users = 0
        self.failures: list[str] = []
        self._descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        self._turn = threading.Lock()
        self._begun = 0

    def flush(self) -> None:
        """What was written before this call. Blocks."""
        wanted = self._begun + 1
        with self._turn:
            if self._begun < wanted:
                self._begun += 1
                if syncfs(self._descriptor) != 0:
                    self.failures.append(os.strerror(ctypes.get_errno()))

    def close(self) -> None:
        os.close(self._descriptor)


_DISKS: dict[int, _Disk] = {}
_LOCK = threading.Lock()


class Keeping:
    """Of a file system on which others write: whether what they wrote is kept."""

    def __init__(self, disk: _Disk) -> None:
        self._disk = disk

    def mark(self) -> int:
        """Before it is written."""
        return len(self._disk.failures)

    def keep(self, mark: int) -> None:
        """All that was written by now; raises where any of it since the mark could not be. Blocks."""
        self._disk.flush()
        if len(self._disk.failures) > mark:
            raise ActionFailed(f"what was written can't be kept: {self._disk.failures[-1]}")


@contextlib.contextmanager
def keeping(directory: Path) -> Iterator[Keeping]:
    """Inside, no failure goes unheard, whoever of this process hears of it."""
    disk = _opened(directory)
    try:
        yield Keeping(disk)
    finally:
        _closed(disk)


@contextlib.contextmanager
def flushing(directory: Path) -> Iterator[Callable[[], None]]:
    """Inside, what is written is flushed meanwhile, so that little is left for the end: that is what the yielded call
    does. It blocks for as long as the disk takes, and nobody sees it move."""
    disk, over = _opened(directory), threading.Event()

    def ahead() -> None:
        try:
            while not over.wait(_INTERVAL):
                disk.flush()
        finally:
            _closed(disk)

    thread = threading.Thread(target=ahead, name="flush", daemon=True)
    with keeping(directory) as kept:
        mark = kept.mark()
        thread.start()

        def rest() -> None:
            over.set()
            thread.join()
            kept.keep(mark)

        try:
            yield rest
        finally:
            # Not waited for: what failed is not kept.
            over.set()


def _opened(directory: Path) -> _Disk:
    number = directory.stat().st_dev
    with _LOCK:
        disk = _DISKS.get(number) or _DISKS.setdefault(number, _Disk(number, directory))
        disk.users += 1
        return disk


def _closed(disk: _Disk) -> None:
    with _LOCK:
        disk.users -= 1
        if not disk.users:
            _DISKS.pop(disk.number).close()
