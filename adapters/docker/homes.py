"""What is inside a home, through a container that never runs: the engine's archive API reaches its volume.

No helper image, no secret in a container, nothing on disk. Where this process can reach the volume's directory itself,
`tar` reads and writes it instead: faster, mtimes to the nanosecond, holes stay holes. Either way it is extracted in a
root of its own: nothing in a tar can leave the volume.
"""

import asyncio
import io
import os
import shutil
import socket
import struct
import tarfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import structlog
from docker import APIClient
from docker.types import Mount

from adapters.archive_store import Fence
from adapters.docker.config import DockerConfig
from adapters.docker.containers import Containers
from adapters.docker.engine import Engine
from adapters.docker.enginetar import EngineTar
from adapters.docker.failures import Conflict, NoImage, NotThere
from adapters.docker.labels import ROLE, Labels, Role
from adapters.docker.spec import NEVER_RUN
from adapters.docker.volumes import FENCE_SECONDS, ForeignVolume, Home, Volumes, foreign
from adapters.homes import HomeSink, HomeStream
from adapters.transfer.closing import closing, started
from adapters.transfer.flush import flushing
from adapters.transfer.proctar import ProcessTar
from adapters.transfer.proctree import CantEnter, ProcessTree
from domain.errors import ActionFailed, DataLost, VolumeInUse
from domain.model import OperationId, WorkspaceId
from domain.naming import volume_name

log = structlog.get_logger()

IMAGE = "codehub-io:1"
TOP = "home"


@dataclass(frozen=True, slots=True)
class DockerHomes:
    engine: Engine
    config: DockerConfig
    containers: Containers
    volumes: Volumes
    direct: bool = True
    """Whether to read and write volumes that this process can reach itself without the engine."""
    fence_seconds: float = FENCE_SECONDS
    _mapped: dict[Path, bool] = field(default_factory=dict, init=False)

    @asynccontextmanager
    async def read(self, workspace_id: WorkspaceId) -> AsyncIterator[HomeStream]:
        if await self.volumes.look(workspace_id) is not Home.OURS:
            raise DataLost(f"Volume {volume_name(workspace_id)} is gone")
        directory = await self._directory(workspace_id) if self.direct else None
        if directory is not None:
            stream = await started(lambda: ProcessTar(directory, TOP))
            async with closing(stream):
                yield stream
            return
        # A home that was whole on its disk, and comes out larger than that, consists of holes. They would come back as
        # zeros, for which there is no room: ever again, and the volume would be gone.
        in_sight = await self._in_sight(workspace_id)
        most = await self.engine.compute(lambda: _disk_size(in_sight)) if in_sight else None
        async with self._io(workspace_id, OperationId("read")) as container:
            with await self.engine.transfer(
                lambda api: EngineTar(api, container, f"/{TOP}", self.engine.where, most)
            ) as tar:
                yield tar

    async def ensure_unused(self, workspace_id: WorkspaceId) -> None:
        name = volume_name(workspace_id)
        found = await self.engine.look(lambda api: api.containers(all=True, filters={"volume": name}))
        holders = [each["Id"][:12] for each in found if (each.get("Labels") or {}).get(ROLE) != Role.IO]
        if holders:
            raise VolumeInUse(f"Volume {name} is in use by container {', '.join(holders)}: stop it first")

    async def remove(self, workspace_id: WorkspaceId, fence: Fence) -> None:
        # What is seen before the fence lets pass is the volume of this operation. Volumes have no id, so it is known
        # again by its labels: whoever is late, and finds another one, leaves it alone.
        seen = await self._volume(workspace_id)
        await fence()
        await self.cut_off(workspace_id)
        if seen is None:
            return
        until = monotonic() + self.fence_seconds
        await fence()
        if await self._volume(workspace_id) not in {seen, None}:
            raise ActionFailed(f"Volume {volume_name(workspace_id)} is not the one that was to be removed")
        await self.discard(workspace_id, until)

    async def discard(self, workspace_id: WorkspaceId, until: float | None = None) -> None:
        """The volume goes, unless it is somebody else's; `until` is of the monotonic clock."""
        try:
            await self.volumes.remove(workspace_id, until)
        except ForeignVolume:
            if not await self._is_unfinished(workspace_id):
                raise
            log.warning("unfinished_volume_removed", workspace=workspace_id)
            await self.volumes.discard(workspace_id, until)

    async def renew(self, workspace_id: WorkspaceId, op_id: OperationId, fence: Fence) -> None:
        await self.remove(workspace_id, fence)
        # The attempts of an operation make one each, and have to know them apart.
        made = await self.volumes.create(workspace_id, OperationId(f"{op_id}.{uuid4().hex[:8]}"), fence)
        if made is not Home.OURS:
            raise foreign(workspace_id)

    @asynccontextmanager
    async def write(self, workspace_id: WorkspaceId, op_id: OperationId) -> AsyncIterator[HomeSink]:
        directory = await self._directory(workspace_id) if self.direct else None
        if directory is not None and (tree := await self._entered(directory)) is not None:
            async with closing(tree):
                with flushing(directory) as rest:
                    await self.cut_off(workspace_id)
                    yield DirectSink(self.engine, tree)
                    # Not while it extracts: whoever watches whether bytes move would take a slow disk for a dead store.
                    await self.engine.transfer(lambda _: rest())
            return
        async with self._io(workspace_id, op_id) as container:
            # The engine has no call for it.
            in_sight = await self._in_sight(workspace_id)
            with flushing(in_sight) if in_sight else nullcontext(lambda: None) as rest:
                yield DockerSink(self.engine, container)
                await self.engine.transfer(lambda _: rest())

    @asynccontextmanager
    async def _io(self, workspace_id: WorkspaceId, op_id: OperationId) -> AsyncIterator[str]:
        """A container that never runs, on the volume. One at a time: a former one is a lost attempt's."""
        await self.cut_off(workspace_id)
        container = await self._create(workspace_id, op_id)
        try:
            yield container
        finally:
            await asyncio.shield(self._removed(container))

    async def _create(self, workspace_id: WorkspaceId, op_id: OperationId) -> str:
        labels = Labels(self.config.installation).of(workspace_id, Role.IO, op_id)

        def create(api: APIClient) -> str:
            made = api.create_container(
                IMAGE,
                command=["never"],
                name=f"{volume_name(workspace_id)}-io",
                labels=labels,
                network_disabled=True,
                host_config={
                    "Mounts": [Mount(f"/{TOP}", volume_name(workspace_id), type="volume", no_copy=True)],
                    **NEVER_RUN,
                },
            )
            return str(made["Id"])

        try:
            return await self.engine.act(create)
        except NoImage:
            await self.engine.act(_import_image)
            return await self.engine.act(create)
        except Conflict as error:
            raise ActionFailed(f"another attempt works on {volume_name(workspace_id)}: {error}") from error

    async def cut_off(self, workspace_id: WorkspaceId) -> None:
        """Whoever still reads or writes through a former container is cut off."""
        found = None
        with suppress(NotThere):
            found = await self.engine.look(lambda api: api.inspect_container(f"{volume_name(workspace_id)}-io"))
        if found is not None:
            if (found["Config"].get("Labels") or {}).get(ROLE) != Role.IO:
                raise ActionFailed(f"Container {volume_name(workspace_id)}-io is not codehub's: remove or rename it")
            await self.containers.remove(found["Id"])

    async def _volume(self, workspace_id: WorkspaceId) -> str | None:
        """What tells this volume from one that is made later under the same name."""
        try:
            found = await self.engine.look(lambda api: api.inspect_volume(volume_name(workspace_id)))
        except NotThere:
            return None
        return f"{found.get('CreatedAt')} {sorted((found.get('Labels') or {}).items())}"

    async def _is_unfinished(self, workspace_id: WorkspaceId) -> bool:
        """An engine that is killed while it makes a volume keeps the directory and forgets the labels, so that it is
        nobody's. What has anything in it was made by somebody."""
        found = await self.engine.look(lambda api: api.inspect_volume(volume_name(workspace_id)))
        if found.get("Labels") or found.get("Options") or found.get("Driver") != "local":
            return False
        directory = await self._directory(workspace_id) if self.direct else None
        if directory is not None:
            return await self.engine.compute(lambda: not any(directory.iterdir()))
        async with self._io(workspace_id, OperationId("look")) as container:
            with await self.engine.transfer(lambda api: EngineTar(api, container, f"/{TOP}", self.engine.where)) as tar:
                return await self.engine.compute(lambda: _holds_nothing(tar))

    async def _removed(self, container: str) -> None:
        with suppress(ActionFailed):
            await self.containers.remove(container)

    async def _in_sight(self, workspace_id: WorkspaceId) -> Path | None:
        """Of a volume whose files this process may not touch, what it can see, as where the engine's folder is mounted
        into the worker's container: enough to have the file system flushed. The name is nobody else's."""
        found = await self.engine.look(lambda api: api.inspect_volume(volume_name(workspace_id)))
        if found.get("Driver") != "local" or found.get("Options"):
            return None
        # Around the home, which may be closed to all but its owner.
        return await self.engine.compute(lambda: _readable(Path(found["Mountpoint"]).parent))

    async def _entered(self, directory: Path) -> ProcessTree | None:
        try:
            return await started(lambda: ProcessTree(directory, TOP))
        except CantEnter as error:
            log.debug("extracted_by_the_engine", reason=str(error))
            return None

    async def _directory(self, workspace_id: WorkspaceId) -> Path | None:
        if not await self.engine.compute(lambda: is_local(self.engine.where)):
            return None
        if shutil.which("tar") is None:
            return None
        found = await self.engine.look(lambda api: api.inspect_volume(volume_name(workspace_id)))
        if found.get("Driver") != "local" or found.get("Options"):
            return None
        if await self._maps_users(Path(found["Mountpoint"]).parent.parent):
            return None
        return await self.engine.compute(lambda: _readable(Path(found["Mountpoint"])))

    async def _maps_users(self, folder: Path) -> bool:
        """Whether the owners on disk are other numbers than those that the engine takes and gives. An engine that does
        so has a folder of volumes of its own for it: so of each it is asked once, which takes as long as a small home.
        """
        if folder not in self._mapped:
            info: dict[str, Any] = await self.engine.look(lambda api: api.info())
            options = info.get("SecurityOptions") or []
            self._mapped[folder] = any(option.startswith(("name=userns", "name=rootless")) for option in options)
        return self._mapped[folder]


@dataclass(frozen=True, slots=True)
class DockerSink:
    engine: Engine
    container: str

    async def extract(self, tar: Iterable[bytes]) -> None:
        # At the root, not at the home: the engine refuses links that point above the directory it extracts to.
        # As an iterator, because a list would be taken for the fields of a form.
        stream = iter(tar)
        try:
            await self.engine.transfer(lambda api: api.put_archive(self.container, "/", stream))
        except ActionFailed as error:
            # It names files.
            raise ActionFailed(f"the home can't be written: {error}", str(error)) from error


@dataclass(frozen=True, slots=True)
class DirectSink:
    engine: Engine
    tree: ProcessTree

    async def extract(self, tar: Iterable[bytes]) -> None:
        await self.engine.transfer(lambda _: self.tree.extract(tar))


def is_local(where: str) -> bool:
    """Whether the engine sees the files that this process sees: a socket may be forwarded from elsewhere."""
    path = where.removeprefix("unix://")
    if path == where or not hasattr(socket, "SO_PEERCRED"):
        return False
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        process, _, _ = struct.unpack("3i", credentials)
        return Path(f"/proc/{process}/comm").read_text().strip() in {"dockerd", "systemd"}
    except OSError:
        return False


def _disk_size(path: Path) -> int | None:
    info = os.statvfs(path)
    return info.f_blocks * info.f_frsize or None


def _readable(directory: Path) -> Path | None:
    try:
        with suppress(StopIteration):
            next(directory.iterdir())
    except OSError:
        return None
    return directory


def _holds_nothing(tar: Iterable[bytes]) -> bool:
    """But its top."""
    chunks = iter(tar)
    stream: Any = SimpleNamespace(read=lambda _: next(chunks, b""))
    with tarfile.open(fileobj=stream, mode="r|") as opened:
        return len(list(islice(opened, 2))) == 1


def _import_image(api: APIClient) -> None:
    """An image of zero bytes: enough to create a container."""
    empty = io.BytesIO()
    with tarfile.open(fileobj=empty, mode="w"):
        pass
    repository, tag = IMAGE.split(":")
    api.import_image_from_data(empty.getvalue(), repository=repository, tag=tag)
