"""Volumes of workspaces: the homes."""

from collections.abc import Mapping
from enum import StrEnum
from time import monotonic
from typing import Any

from docker import APIClient

from adapters.archive_store import Fence
from adapters.docker.config import DockerConfig
from adapters.docker.engine import Engine
from adapters.docker.failures import Conflict, NotThere
from adapters.docker.labels import WORKSPACE, Labels, Role
from adapters.docker.marker import Marker
from domain.errors import ActionFailed, Unreachable, VolumeInUse
from domain.model import OperationId, WorkspaceId
from domain.naming import is_workspace_id, volume_name

REMOVED_WITHIN = 1500.0
"""Seconds. A disk may take minutes for a home of many files."""
FENCE_SECONDS = 5.0
"""How long a fence that let pass is believed."""


class Home(StrEnum):
    """What the engine has under the name of a workspace's volume."""

    OURS = "OURS"
    ABSENT = "ABSENT"
    STRAY = "STRAY"
    """Made by the engine itself when a container named a missing one: empty, never run on, no home."""
    FOREIGN = "FOREIGN"


class ForeignVolume(ActionFailed):
    """Somebody else's, or nobody's: see `DockerHomes.discard`."""


class Volumes:
    def __init__(self, engine: Engine, config: DockerConfig) -> None:
        self._engine = engine
        self._labels = Labels(config.installation)
        self.marker = Marker(engine, config)

    async def look(self, workspace_id: WorkspaceId) -> Home:
        try:
            found = await self._engine.look(lambda api: api.inspect_volume(volume_name(workspace_id)))
        except NotThere:
            # Absent only from the data that should hold it.
            await self.marker.confirm()
            return Home.ABSENT
        return self._whose(workspace_id, found)

    async def list(self) -> set[WorkspaceId]:
        await self.marker.confirm()
        return await self.found()

    async def found(self) -> set[WorkspaceId]:
        """Whatever is on this engine, be it the node's or not."""
        filters = self._labels.filter(Role.HOME)
        found = await self._engine.look(lambda api: api.volumes(filters=filters))
        listed = ((WorkspaceId(v["Labels"].get(WORKSPACE, "")), v["Name"]) for v in found["Volumes"] or [])
        return {id_ for id_, name in listed if is_workspace_id(id_) and name == volume_name(id_)}

    async def create(self, workspace_id: WorkspaceId, op_id: OperationId, fence: Fence) -> Home:
        """What has the name then: the engine answers with the one that exists, whosever it is."""
        await self.marker.confirm()
        labels = self._labels.of(workspace_id, Role.HOME, op_id)
        name = volume_name(workspace_id)
        until = monotonic() + FENCE_SECONDS
        await fence()
        # In a thread of its own: in a queue behind others it might be too late without anybody having been stopped.
        made = await self._engine.transfer(lambda api: _create(api, name, labels, until))
        home = self._whose(workspace_id, made)
        # An engine that was restarted tells no labels of one that was there before: then it has to be looked at.
        return home if home is not Home.FOREIGN else await self.look(workspace_id)

    async def remove(self, workspace_id: WorkspaceId, until: float | None = None) -> None:
        match await self.look(workspace_id):
            case Home.ABSENT:
                return
            case Home.FOREIGN:
                raise foreign(workspace_id)
        await self.discard(workspace_id, until)

    async def discard(self, workspace_id: WorkspaceId, until: float | None = None) -> None:
        """Whosever it is. Not after `until` of the monotonic clock: by then it may be another one."""
        name = volume_name(workspace_id)
        try:
            await self._engine.transfer(lambda api: _remove(api, name, until))
        except NotThere:
            return
        except Conflict as error:
            raise VolumeInUse(f"Volume {name} is still in use: stop its container first ({error})") from error

    def _whose(self, workspace_id: WorkspaceId, found: Mapping[str, Any]) -> Home:
        labels = found.get("Labels")
        if self._labels.owns(labels, Role.HOME, workspace_id):
            return Home.OURS
        if self._labels.owns(labels, Role.STRAY, workspace_id):
            return Home.STRAY
        return Home.FOREIGN


def _create(api: APIClient, name: str, labels: Mapping[str, str], until: float) -> Mapping[str, Any]:
    _ensure_in_time(name, until)
    made: Mapping[str, Any] = api.create_volume(name, driver="local", labels=dict(labels))
    return made


def _ensure_in_time(name: str, until: float) -> None:
    """The engine takes no condition along: whoever is stopped right here, and goes on much later, sends nothing."""
    if monotonic() > until:
        raise Unreachable(f"too much time passed before volume {name} could be changed: it is looked at again")


def _remove(api: APIClient, name: str, until: float | None) -> None:
    if until is not None:
        _ensure_in_time(name, until)
    # Not by `remove_volume`, which has the timeout of any call: the engine answers when the last file is gone.
    url = api._url("/volumes/{0}", name)  # type: ignore[attr-defined] # noqa: SLF001
    answer = api._delete(url, timeout=REMOVED_WITHIN)  # type: ignore[attr-defined] # noqa: SLF001
    api._raise_for_status(answer)  # type: ignore[attr-defined] # noqa: SLF001


def foreign(workspace_id: WorkspaceId) -> ForeignVolume:
    return ForeignVolume(
        f"Volume {volume_name(workspace_id)} exists, but is not of this codehub installation: "
        "it is left alone; remove or rename it"
    )
