"""Homes on a real engine, and a person who looks at them from the machine's side."""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from docker import APIClient
from docker.errors import NotFound

from adapters.docker.homes import DockerHomes
from adapters.docker.runtime import DockerRuntime
from adapters.homes import HomeStream
from adapters.transfer.bridge import from_thread
from adapters.transfer.pack import Packed, pack
from domain.model import OperationId, WorkspaceId
from domain.naming import volume_name


class Volumes:
    def __init__(self, api: APIClient, runtime: DockerRuntime) -> None:
        self.api = api
        self.runtime = runtime
        self._made: list[WorkspaceId] = []

    def name(self) -> WorkspaceId:
        """Of a workspace that has nothing yet; what it gets is removed at the end."""
        workspace = WorkspaceId(str(uuid4()))
        self._made.append(workspace)
        return workspace

    async def make(self) -> tuple[WorkspaceId, Path]:
        workspace = self.name()
        await self.runtime.create_volume(workspace, OperationId("made"))
        return workspace, self.path(workspace)

    def path(self, workspace: WorkspaceId) -> Path:
        return Path(self.api.inspect_volume(volume_name(workspace))["Mountpoint"])

    def exists(self, workspace: WorkspaceId) -> bool:
        try:
            self.api.inspect_volume(volume_name(workspace))
        except NotFound:
            return False
        return True

    def holders(self, workspace: WorkspaceId) -> list[str]:
        """Containers, running or not, that use its volume."""
        found = self.api.containers(all=True, filters={"volume": volume_name(workspace)})
        return [item["Names"][0] for item in found]

    def forget(self, workspace: WorkspaceId) -> None:
        """Remove it now: homes take room."""
        self.api.remove_volume(volume_name(workspace))

    def clear(self) -> None:
        """Everything of this installation, and what else has the names of its workspaces."""
        label = {"label": f"codehub.installation={self.runtime.config.installation}"}
        for container in self.api.containers(all=True, filters=label):
            with suppress(NotFound):
                self.api.remove_container(container["Id"], force=True)
        names = {volume["Name"] for volume in self.api.volumes(filters=label)["Volumes"] or []}
        for name in names | {volume_name(workspace) for workspace in self._made}:
            with suppress(NotFound):
                self.api.remove_volume(name)


async def nothing() -> None:
    """A fence that nobody has overtaken."""


async def tar_of(homes: DockerHomes, workspace: WorkspaceId) -> tuple[bytes, Packed]:
    """The home's tar as an archive would hold it."""
    packed = Packed()
    async with homes.read(workspace) as home:
        chunks = [chunk async for chunk in from_thread(_kept(home, packed))]
    return b"".join(chunks), packed


async def archived(homes: DockerHomes, workspace: WorkspaceId) -> bytes:
    packed = Packed()
    async with homes.read(workspace) as home:
        return b"".join([part async for part in from_thread(pack(home, packed))])


async def extract(homes: DockerHomes, workspace: WorkspaceId, tar: Iterable[bytes]) -> None:
    async with homes.write(workspace, OperationId("write")) as sink, asyncio.timeout(120):
        await sink.extract(tar)


def _kept(home: HomeStream, packed: Packed) -> Iterator[bytes]:
    for chunk in home:
        yield packed.scanner.feed(chunk)
    packed.scanner.finish()
