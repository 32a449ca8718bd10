"""The runtime in this process's memory: instant, and as bad as it is told to be."""

import asyncio
import io
import tarfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Self
from weakref import WeakSet

from adapters.archive_store import Fence, unfenced
from adapters.runtime import PortsTaken, none_taken
from domain.errors import ContainerWithoutVolume, DataLost, ImagePullFailed, Unreachable, VolumeInUse
from domain.model import OperationId, WorkspaceId
from domain.naming import volume_name
from domain.observation import UNKNOWN_RESOURCES, ContainerState, Presence, Resources

ENDPOINT = "memory.invalid:8080"
"""Well formed, and nobody is there."""


def _empty_home() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        top = tarfile.TarInfo("home")
        top.type, top.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(top)
    return made.getvalue()


EMPTY_HOME = _empty_home()


@dataclass(eq=False, slots=True)
class MemoryVolume:
    op_id: OperationId
    tar: bytes = field(default_factory=lambda: EMPTY_HOME)
    """What is in it, with `home/` as its top directory."""


@dataclass(slots=True)
class _Container:
    image_ref: str
    op_id: OperationId
    running: bool = True


class MemoryRuntime:
    """`adapters.runtime.Runtime` without an engine."""

    def __init__(self) -> None:
        self.missing_images: set[str] = set()
        """Images that can't be pulled."""
        self.volumes: dict[WorkspaceId, MemoryVolume] = {}
        self._containers: dict[WorkspaceId, _Container] = {}
        self._watches: WeakSet[MemoryWatch] = WeakSet()
        self._unreachable = False

    @property
    def unreachable(self) -> bool:
        return self._unreachable

    @unreachable.setter
    def unreachable(self, value: bool) -> None:
        self._unreachable = value
        if value:
            for watch in list(self._watches):
                watch.cut()

    def drop_container(self, workspace_id: WorkspaceId) -> None:
        """Behind its back, as by a person at the engine."""
        self._containers.pop(workspace_id, None)
        self._changed(workspace_id)

    def kill_container(self, workspace_id: WorkspaceId) -> None:
        """As when its process ends by itself: the container stays, stopped."""
        self._containers[workspace_id].running = False
        self._changed(workspace_id)

    def drop_volume(self, workspace_id: WorkspaceId) -> None:
        self.volumes.pop(workspace_id, None)
        self._changed(workspace_id)

    def reach(self) -> None:
        """Raises Unreachable when it was told to."""
        if self._unreachable:
            raise _unreachable()

    def ensure_unused(self, workspace_id: WorkspaceId) -> None:
        """Raises VolumeInUse while a container holds the volume."""
        if workspace_id in self._containers:
            raise VolumeInUse(f"Volume {volume_name(workspace_id)} is still in use: stop its container first")

    async def observe(self, workspace_id: WorkspaceId, *, probe: bool) -> Resources:  # noqa: ARG002
        return UNKNOWN_RESOURCES if self._unreachable else self._resources(workspace_id)

    async def observe_all(self) -> Mapping[WorkspaceId, Resources]:
        self.reach()
        return {one: self._resources(one) for one in self.volumes.keys() | self._containers.keys()}

    async def create_volume(self, workspace_id: WorkspaceId, op_id: OperationId, fence: Fence = unfenced) -> None:
        self.reach()
        await fence()
        if workspace_id not in self.volumes:
            self.volumes[workspace_id] = MemoryVolume(op_id)
            self._changed(workspace_id)

    async def start(
        self,
        workspace_id: WorkspaceId,
        image_ref: str,
        op_id: OperationId,
        fence: Fence = unfenced,
        taken: PortsTaken = none_taken,  # noqa: ARG002
    ) -> None:
        self.reach()
        await fence()
        found = self._containers.get(workspace_id)
        if workspace_id not in self.volumes:
            if found is not None and found.running:
                raise ContainerWithoutVolume(f"A container runs, but {volume_name(workspace_id)} is gone")
            self._containers.pop(workspace_id, None)
            raise DataLost(f"Volume {volume_name(workspace_id)} is gone")
        if found is not None and found.running and found.image_ref == image_ref:
            return
        if image_ref in self.missing_images:
            raise ImagePullFailed(f"Image {image_ref} can't be pulled")
        self._containers[workspace_id] = _Container(image_ref, op_id)
        self._changed(workspace_id)

    async def stop(self, workspace_id: WorkspaceId, fence: Fence = unfenced) -> None:
        self.reach()
        await fence()
        if self._containers.pop(workspace_id, None):
            self._changed(workspace_id)

    async def remove_volume(self, workspace_id: WorkspaceId) -> None:
        self.reach()
        self.ensure_unused(workspace_id)
        if self.volumes.pop(workspace_id, None):
            self._changed(workspace_id)

    async def isolate(self) -> None:
        """Nothing runs here."""

    def watch(self) -> "MemoryWatch":
        watch = MemoryWatch(reachable=not self._unreachable)
        self._watches.add(watch)
        return watch

    async def close(self) -> None:
        for watch in list(self._watches):
            await watch.aclose()

    def _changed(self, workspace_id: WorkspaceId) -> None:
        for watch in list(self._watches):
            watch.tell(workspace_id)

    def _resources(self, workspace_id: WorkspaceId) -> Resources:
        volume = Presence.PRESENT if workspace_id in self.volumes else Presence.ABSENT
        container = self._containers.get(workspace_id)
        if container is None:
            return Resources(ContainerState.ABSENT, volume)
        if not container.running:
            return Resources(ContainerState.STOPPED, volume)
        return Resources(ContainerState.READY, volume, ENDPOINT)


@dataclass(eq=False)
class MemoryWatch(AsyncIterator[WorkspaceId]):
    """Subscribed from the beginning."""

    reachable: bool
    _closed: bool = False
    _pending: dict[WorkspaceId, None] = field(default_factory=dict)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def __aenter__(self) -> Self:
        if not self.reachable:
            raise _unreachable()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def __anext__(self) -> WorkspaceId:
        while self._closed or not self._pending:
            if self._closed:
                raise StopAsyncIteration
            if not self.reachable:
                raise _unreachable()
            self._news.clear()
            await self._news.wait()
        workspace_id = next(iter(self._pending))
        del self._pending[workspace_id]
        return workspace_id

    async def aclose(self) -> None:
        self._closed = True
        self._news.set()

    def tell(self, workspace_id: WorkspaceId) -> None:
        self._pending[workspace_id] = None
        self._news.set()

    def cut(self) -> None:
        self.reachable = False
        self._news.set()


def _unreachable() -> Unreachable:
    return Unreachable("The engine in memory was told not to answer")
