"""Volumes of workspaces: the homes."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from adapters.docker.config import DockerConfig
from adapters.docker.engine import Engine
from adapters.docker.failures import Conflict, NotThere
from adapters.docker.labels import WORKSPACE, Labels, Role
from domain.errors import ActionFailed
from domain.model import OperationId, WorkspaceId
from domain.naming import volume_name


class Home(StrEnum):
    """What the engine has under the name of a workspace's volume."""

    OURS = "OURS"
    ABSENT = "ABSENT"
    STRAY = "STRAY"
    """Made by the engine itself when a container named a missing one: empty, never run on, no home."""
    FOREIGN = "FOREIGN"


class Volumes:
    def __init__(self, engine: Engine, config: DockerConfig) -> None:
        self._engine = engine
        self._labels = Labels(config.installation)

    async def look(self, workspace_id: WorkspaceId) -> Home:
        try:
            found = await self._engine.look(lambda api: api.inspect_volume(volume_name(workspace_id)))
        except NotThere:
            return Home.ABSENT
        return self._whose(workspace_id, found)

    async def list(self) -> set[WorkspaceId]:
        filters = self._labels.filter(Role.HOME)
        found = await self._engine.look(lambda api: api.volumes(filters=filters))
        listed = ((WorkspaceId(v["Labels"].get(WORKSPACE, "")), v["Name"]) for v in found["Volumes"] or [])
        return {workspace_id for workspace_id, name in listed if name == volume_name(workspace_id)}

    async def create(self, workspace_id: WorkspaceId, op_id: OperationId) -> Home:
        """What has the name then: the engine answers with the one that exists, whosever it is."""
        labels = self._labels.of(workspace_id, Role.HOME, op_id)
        name = volume_name(workspace_id)
        made = await self._engine.act(lambda api: api.create_volume(name, driver="local", labels=labels))
        return self._whose(workspace_id, made)

    async def remove(self, workspace_id: WorkspaceId) -> None:
        name = volume_name(workspace_id)
        match await self.look(workspace_id):
            case Home.ABSENT:
                return
            case Home.FOREIGN:
                raise foreign(workspace_id)
        try:
            await self._engine.act(lambda api: api.remove_volume(name))
        except NotThere:
            return
        except Conflict as error:
            raise ActionFailed(f"Volume {name} is still in use: stop its container first ({error})") from error

    def _whose(self, workspace_id: WorkspaceId, found: Mapping[str, Any]) -> Home:
        labels = found.get("Labels")
        if self._labels.owns(labels, Role.HOME, workspace_id):
            return Home.OURS
        if self._labels.owns(labels, Role.STRAY, workspace_id):
            return Home.STRAY
        return Home.FOREIGN


def foreign(workspace_id: WorkspaceId) -> ActionFailed:
    return ActionFailed(
        f"Volume {volume_name(workspace_id)} exists, but is not of this codehub installation: "
        "it is left alone; remove or rename it"
    )
