"""The runtime of workspaces on one Docker engine."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from weakref import WeakSet

import structlog

from adapters.archive_store import Fence, unfenced
from adapters.docker.config import DockerConfig
from adapters.docker.containers import Container, Containers
from adapters.docker.engine import Engine, EngineInfo, Identity
from adapters.docker.events import DockerWatch
from adapters.docker.homes import DockerHomes
from adapters.docker.images import Images
from adapters.docker.network import Network
from adapters.docker.readiness import answers
from adapters.docker.starting import Starting
from adapters.docker.surroundings import Neighbours
from adapters.docker.volumes import Home, Volumes
from adapters.runtime import PortsTaken, none_taken
from domain.errors import ActionFailed, WorkspaceError
from domain.model import OperationId, WorkspaceId
from domain.naming import volume_name
from domain.observation import ContainerState, Presence, Resources

log = structlog.get_logger()

_ASIDE = 3
"""A heartbeat, a sweep, and whoever else asks."""


class DockerRuntime:
    """`adapters.runtime.Runtime` on Docker. Nothing is connected before the first call."""

    def __init__(self, config: DockerConfig, neighbours: Neighbours | None = None) -> None:
        self.config = config
        self._engine = Engine(config)
        self._containers = Containers(self._engine, config)
        self._volumes = Volumes(self._engine, config)
        # What is asked of the node as a whole has threads and connections of its own: behind a hundred starts it would
        # come so late that the node is taken for lost.
        self._aside = Engine(replace(config, pool_size=_ASIDE))
        self._network = Network(self._engine, config, self._aside, neighbours)
        self._all_containers = Containers(self._aside, config)
        self._all_volumes = Volumes(self._aside, config)
        self._starting = Starting(self._containers, self._volumes, Images(self._engine), self._network, config)
        self._watches: WeakSet[DockerWatch] = WeakSet()

    @property
    def where(self) -> str:
        return self._engine.where

    async def ping(self) -> EngineInfo:
        return await self._engine.info()

    async def identify(self) -> Identity:
        """Which engine this is, by itself and by what is on it."""
        volumes = self._all_volumes
        return Identity(await self._aside.info(), await volumes.marker.ensure(), bool(await volumes.found()))

    def registered(self, marker: str) -> None:
        """From now on, only what carries this marker is this node's engine."""
        self._volumes.marker.registered = self._all_volumes.marker.registered = marker

    async def confirm(self) -> None:
        """Raises Unreachable while this node's engine does not answer, or another one does. One call."""
        await self._all_volumes.marker.confirm()

    async def observe(self, workspace_id: WorkspaceId, *, probe: bool) -> Resources:
        (container, endpoint), volume = await asyncio.gather(
            self._container(workspace_id, probe=probe), self._volume(workspace_id)
        )
        if container is ContainerState.ABSENT and volume is Presence.UNKNOWN:
            # Of another engine than the node's, this says nothing.
            container = ContainerState.UNKNOWN
        return Resources(container, volume, endpoint)

    async def observe_all(self) -> Mapping[WorkspaceId, Resources]:
        # The homes last: what they are confirmed by held for the containers, too.
        containers, homes = await self._all_containers.list(), await self._all_volumes.list()
        return {
            workspace_id: _resources(containers.get(workspace_id), home=workspace_id in homes)
            for workspace_id in homes | containers.keys()
        }

    async def create_volume(self, workspace_id: WorkspaceId, op_id: OperationId, fence: Fence = unfenced) -> None:
        home = await self._volumes.create(workspace_id, op_id, fence)
        if home is Home.STRAY:
            # Left by a start that died: no container ever ran on it.
            await self.stop(workspace_id, fence)
            await self._volumes.remove(workspace_id)
            home = await self._volumes.create(workspace_id, op_id, fence)
        if home is Home.FOREIGN:
            await self.homes().discard(workspace_id)
            home = await self._volumes.create(workspace_id, op_id, fence)
        if home is not Home.OURS:
            raise ActionFailed(f"Volume {volume_name(workspace_id)} is being used by another start")

    async def start(
        self,
        workspace_id: WorkspaceId,
        image_ref: str,
        op_id: OperationId,
        fence: Fence = unfenced,
        taken: PortsTaken = none_taken,
    ) -> None:
        await self._starting.start(workspace_id, image_ref, op_id, fence, taken)

    async def stop(self, workspace_id: WorkspaceId, fence: Fence = unfenced) -> None:
        found = await self._containers.find(workspace_id)
        # Not at the same time: what is ended by its id must have been found before.
        await fence()
        if found is not None and found.ours:
            await self._containers.end(found)

    async def remove_volume(self, workspace_id: WorkspaceId) -> None:
        # A worker that was killed in a transfer has left its container, which holds the volume.
        await self.homes().cut_off(workspace_id)
        await self.homes().discard(workspace_id)

    def homes(self, *, direct: bool = True) -> DockerHomes:
        """What is inside the volumes."""
        return DockerHomes(self._engine, self.config, self._containers, self._volumes, direct)

    def watch(self) -> DockerWatch:
        """`async with runtime.watch() as changes`: once entered, no change is missed. See DockerWatch."""
        watch = DockerWatch(self._engine, self.config.installation)
        self._watches.add(watch)
        return watch

    async def isolate(self) -> None:
        await self._network.isolate()

    async def ensure_network(self) -> None:
        """The first start does it, too."""
        await self._network.ensure()

    async def remove_network(self) -> None:
        """For an installation that goes away: its network and the rules for it."""
        await self._network.remove()

    async def close(self) -> None:
        for watch in list(self._watches):
            await watch.aclose()
        await self._engine.close()
        await self._aside.close()

    async def _container(self, workspace_id: WorkspaceId, *, probe: bool) -> tuple[ContainerState, str | None]:
        try:
            state, endpoint = _state(await self._containers.find(workspace_id))
        except WorkspaceError as error:
            log.warning("container_not_observed", workspace=workspace_id, reason=str(error))
            return ContainerState.UNKNOWN, None
        if probe and endpoint and not await answers(endpoint, self.config.probe_timeout):
            return ContainerState.UNREADY, endpoint
        return state, endpoint

    async def _volume(self, workspace_id: WorkspaceId) -> Presence:
        try:
            home = await self._volumes.look(workspace_id)
        except WorkspaceError as error:
            log.warning("volume_not_observed", workspace=workspace_id, reason=str(error))
            return Presence.UNKNOWN
        return Presence.PRESENT if home is Home.OURS else Presence.ABSENT


def _state(found: Container | None) -> tuple[ContainerState, str | None]:
    """What is not ours is not there."""
    if found is None or not found.ours:
        return ContainerState.ABSENT, None
    if not found.running:
        return ContainerState.STOPPED, None
    if found.endpoint is None:
        return ContainerState.UNREADY, None
    return ContainerState.READY, found.endpoint


def _resources(found: Container | None, *, home: bool) -> Resources:
    container, endpoint = _state(found)
    return Resources(container, Presence.PRESENT if home else Presence.ABSENT, endpoint)
