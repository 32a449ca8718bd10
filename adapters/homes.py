"""The interface to what is inside a home: out as a tar stream, in from one."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from adapters.archive_store import Fence
from domain.model import OperationId, WorkspaceId


class HomeStream(Protocol):
    """A home's tar, with `home/` as its top directory. Iterated in a thread; closing it from another ends it."""

    total: int | None
    """Bytes that the files hold, where that is known beforehand."""

    def __iter__(self) -> Iterator[bytes]: ...

    @property
    def sockets(self) -> int | None:
        """How many sockets were left out, known at the end; None where nobody says."""
        ...


class Homes(Protocol):
    def read(self, workspace_id: WorkspaceId) -> AbstractAsyncContextManager[HomeStream]:
        """The home as it is. No container may run on it. Raises DataLost where there is no volume."""
        ...

    async def ensure_unused(self, workspace_id: WorkspaceId) -> None:
        """Raises VolumeInUse while a container, running or not, holds the volume: `remove` would, too. Those through
        which homes are read and written don't count."""
        ...

    async def remove(self, workspace_id: WorkspaceId, fence: Fence) -> None:
        """Remove the volume that is there while the fence lets pass, never one that was made since.

        Whoever still reads or writes through the engine is cut off; a volume that a container holds stays as it is:
        VolumeInUse. After any other failure a part of it may be gone.
        """
        ...

    async def renew(self, workspace_id: WorkspaceId, op_id: OperationId, fence: Fence) -> None:
        """An empty volume in place of the one that `remove` would remove."""
        ...

    def write(self, workspace_id: WorkspaceId, op_id: OperationId) -> AbstractAsyncContextManager["HomeSink"]:
        """Fill the volume. Entered, it can be written to; a later `renew` takes it away. Left without an error, what
        was extracted is on the disk, where this process can see to that: however long the disk takes."""
        ...


class HomeSink(Protocol):
    async def extract(self, tar: Iterable[bytes]) -> None:
        """Extract the stream, which is iterated in a thread. Nothing in it can leave the volume."""
        ...
