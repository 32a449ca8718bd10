"""What is inside the homes of MemoryRuntime: each volume holds its tar."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from adapters.archive_store import Fence
from adapters.memory.runtime import MemoryRuntime, MemoryVolume
from domain.errors import ActionFailed, DataLost
from domain.model import OperationId, WorkspaceId
from domain.naming import volume_name

_CHUNK = 4096


@dataclass(slots=True)
class MemoryStream:
    """`adapters.homes.HomeStream`."""

    tar: bytes
    total: int | None = None
    sockets: int = 0

    def __iter__(self) -> Iterator[bytes]:
        for start in range(0, len(self.tar), _CHUNK):
            yield self.tar[start : start + _CHUNK]


@dataclass(frozen=True, slots=True)
class MemoryHomes:
    """`adapters.homes.Homes` without an engine."""

    runtime: MemoryRuntime

    @asynccontextmanager
    async def read(self, workspace_id: WorkspaceId) -> AsyncIterator[MemoryStream]:
        yield MemoryStream(self._volume(workspace_id).tar)

    async def ensure_unused(self, workspace_id: WorkspaceId) -> None:
        self.runtime.reach()
        self.runtime.ensure_unused(workspace_id)

    async def remove(self, workspace_id: WorkspaceId, fence: Fence) -> None:
        self.runtime.reach()
        seen = self.runtime.volumes.get(workspace_id)
        await fence()
        if seen is None:
            return
        await fence()
        if self.runtime.volumes.get(workspace_id) not in {seen, None}:
            raise ActionFailed(f"Volume {volume_name(workspace_id)} is not the one that was to be removed")
        await self.runtime.remove_volume(workspace_id)

    async def renew(self, workspace_id: WorkspaceId, op_id: OperationId, fence: Fence) -> None:
        await self.remove(workspace_id, fence)
        await self.runtime.create_volume(workspace_id, op_id, fence)

    @asynccontextmanager
    async def write(self, workspace_id: WorkspaceId, op_id: OperationId) -> AsyncIterator["MemorySink"]:  # noqa: ARG002
        yield MemorySink(self._volume(workspace_id))

    def _volume(self, workspace_id: WorkspaceId) -> MemoryVolume:
        self.runtime.reach()
        volume = self.runtime.volumes.get(workspace_id)
        if volume is None:
            raise DataLost(f"Volume {volume_name(workspace_id)} is gone")
        return volume


@dataclass(frozen=True, slots=True)
class MemorySink:
    """Writes to the volume that it was opened for, also when another one has its name by now."""

    volume: MemoryVolume

    async def extract(self, tar: Iterable[bytes]) -> None:
        self.volume.tar = b""
        await asyncio.to_thread(self._fill, tar)

    def _fill(self, tar: Iterable[bytes]) -> None:
        for chunk in tar:
            self.volume.tar += chunk
