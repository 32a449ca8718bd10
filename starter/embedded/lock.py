"""One `codehub up` per data directory."""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from starter.embedded.errors import EmbeddedError


class DataLock:
    """An flock on DATA/lock: the kernel lets go of it when the holder dies, however it dies."""

    def __init__(self, data: Path) -> None:
        self.path = data / "lock"
        self._handle: int | None = None

    def acquire(self) -> None:
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise EmbeddedError(
                f"Can't open {self.path} ({error.strerror}): start as the user who owns {self.path.parent}."
            ) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(handle, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(handle)
            raise EmbeddedError(
                f"{self.path.parent} is in use by the codehub with process id {holder}: "
                f"stop that one first, or name another directory in CODEHUB_DATA."
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        self._handle = handle

    def release(self) -> None:
        # The file stays: removing it would let two processes lock two files of one name.
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
