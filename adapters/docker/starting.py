"""STARTING: from whatever is there to one container that answers."""

import asyncio
from dataclasses import dataclass

import structlog

from adapters.archive_store import Fence
from adapters.docker.config import DockerConfig
from adapters.docker.containers import Container, Containers
from adapters.docker.failures import Conflict, NoImage, NotThere
from adapters.docker.images import Images
from adapters.docker.network import Network
from adapters.docker.readiness import answers
from adapters.docker.volumes import Home, Volumes, foreign
from adapters.runtime import PortsTaken
from domain.errors import ActionFailed, ContainerWithoutVolume, DataLost, ImagePullFailed
from domain.model import OperationId, WorkspaceId
from domain.naming import container_name, volume_name

log = structlog.get_logger()

SETTLE_SECONDS = 60.0
"""How long another attempt, or somebody else, may keep changing the same container."""
QUICK_POLL, QUICK_SECONDS = 0.005, 0.1
FIRST_POLL = 0.01
SLOWEST_POLL = 0.2
FIRST_LOOK = 0.05
LOOK_EVERY = 0.25
BAD_REFERENCE = "invalid reference format"
NO_RULE = "iptables failed"
PORT_IN_USE = ("port is already allocated", "address already in use")
FILTER_SECONDS = 5.0
"""How long the engine may be kept from its packet filter: another engine that starts on the machine, or a firewall that
is being reloaded, takes its chains away for a moment."""


@dataclass(frozen=True, slots=True)
class Started:
    """A container that was seen to run, or was told to."""

    id: str
    endpoint: str | None
    """None: not known yet."""


class Starting:
    def __init__(
        self,
        containers: Containers,
        volumes: Volumes,
        images: Images,
        network: Network,
        config: DockerConfig,
    ) -> None:
        self._containers = containers
        self._volumes = volumes
        self._images = images
        self._network = network
        self._config = config

    async def start(
        self, workspace_id: WorkspaceId, image_ref: str, op_id: OperationId, fence: Fence, taken: PortsTaken
    ) -> None:
        clock = asyncio.get_running_loop().time
        until, pause, patience = clock() + SETTLE_SECONDS, FIRST_POLL, 0.0
        step, is_first = self._at_once, True
        while clock() < until:
            try:
                started = await step(workspace_id, image_ref, op_id, fence, taken)
            except ActionFailed as error:
                patience = patience or clock() + FILTER_SECONDS
                if not _is_worth_another_try(error, patience - clock()):
                    raise
                log.warning("container_start_again", workspace=workspace_id, reason=str(error))
                started = None
            if started is not None:
                await self._until_ready(workspace_id, started)
                return
            if is_first:
                step, is_first = self._round, False
                continue
            # A name is taken some time before its container can be seen.
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, SLOWEST_POLL)
        raise ActionFailed(f"Container {container_name(workspace_id)} is being changed by somebody else as well")

    async def _at_once(
        self, workspace_id: WorkspaceId, image_ref: str, op_id: OperationId, fence: Fence, taken: PortsTaken
    ) -> Started | None:
        """As if there were no container, which is the rule: where there is one, the engine refuses before it does
        anything. Not as if there were a home: it makes one that is missing, and may write into somebody else's."""
        home, port, _, _ = await asyncio.gather(
            self._volumes.look(workspace_id), self._containers.choose_port(taken), self._network.ensure(), fence()
        )
        if home is not Home.OURS:
            return None
        try:
            made = await self._create(workspace_id, image_ref, op_id, port)
        except NoImage:
            # A container may be there that was made of it.
            return None
        return await self._run(workspace_id, made, fence, port) if made else None

    async def _round(
        self, workspace_id: WorkspaceId, image_ref: str, op_id: OperationId, fence: Fence, taken: PortsTaken
    ) -> Started | None:
        """One step from what is there; None means: look again."""
        found, home, _, _ = await asyncio.gather(
            self._containers.find(workspace_id),
            self._volumes.look(workspace_id),
            self._network.ensure(),
            fence(),
        )
        if found is not None and not found.ours:
            raise ActionFailed(
                f"Container {container_name(workspace_id)} exists, but is not of this codehub installation: "
                "it is left alone; remove or rename it"
            )
        if home is not Home.OURS:
            await self._no_home(workspace_id, home, found)
        match found:
            case Container(running=True, image_ref=image) if image == image_ref:
                return Started(found.id, found.endpoint)
            case Container(status="created", image_ref=image, op_id=op) if (image, op) == (image_ref, op_id):
                # An earlier attempt died here, or is still at it: to remove its container would make the two
                # undo each other's work. To start one that is being started does no harm.
                return await self._run(workspace_id, found.id, fence)
            case Container():
                await self._containers.end(found)
                return None
            case None:
                port = await self._containers.choose_port(taken)
                try:
                    made = await self._create(workspace_id, image_ref, op_id, port)
                except NoImage:
                    # Asked for only now: that it is there is the rule, and asking first costs every start a call.
                    await self._images.fetch(image_ref)
                    made = await self._create(workspace_id, image_ref, op_id, port)
                return await self._run(workspace_id, made, fence, port) if made else None

    async def _create(self, workspace_id: WorkspaceId, image_ref: str, op_id: OperationId, port: int) -> str | None:
        """Raises NoImage. None: there is one."""
        try:
            return await self._containers.create(workspace_id, image_ref, op_id, port)
        except Conflict:
            log.debug("container_name_taken", workspace=workspace_id)
            return None
        except ActionFailed as error:
            if BAD_REFERENCE not in str(error):
                raise
            raise ImagePullFailed(f"Image {image_ref} can't be pulled: {error}") from error

    async def _check_home(self, workspace_id: WorkspaceId, container_id: str, fence: Fence) -> None:
        """The volume may have gone between our look and the creation, which then made an empty one.

        From here on it can't go: the engine keeps the volume of an existing container. So whoever takes over later has
        this container removed first, and whoever is late, and finds another volume under the name, is told here.
        """
        home, _ = await asyncio.gather(self._volumes.look(workspace_id), fence())
        if home is not Home.OURS:
            await self._containers.remove(container_id)
            await self._no_home(workspace_id, home, None)

    async def _no_home(self, workspace_id: WorkspaceId, home: Home, found: Container | None) -> None:
        name = volume_name(workspace_id)
        if home is Home.FOREIGN:
            raise foreign(workspace_id)
        if found is not None and found.running:
            # Left running: it may be the last to hold the data.
            raise ContainerWithoutVolume(f"Container {container_name(workspace_id)} runs, but {name} is gone")
        if found is not None:
            await self._containers.end(found)
        if home is Home.STRAY:
            await self._volumes.remove(workspace_id)
        raise DataLost(f"Volume {name} is gone: the workspace is not started on an empty home")

    async def _run(
        self, workspace_id: WorkspaceId, container_id: str, fence: Fence, port: int | None = None
    ) -> Started | None:
        await self._check_home(workspace_id, container_id, fence)
        try:
            await self._containers.run(container_id)
        except NotThere as error:
            # The network was removed, or the container by another attempt.
            log.warning("container_start_again", workspace=workspace_id, reason=str(error))
            self._network.forget()
            await self._containers.remove(container_id)
            return None
        except ActionFailed:
            # Whatever is wrong with it, the next attempt gets a new one.
            await self._containers.remove(container_id)
            raise
        return Started(container_id, self._containers.at(port) if port else None)

    async def _until_ready(self, workspace_id: WorkspaceId, started: Started) -> None:
        """Until it answers; how long that may take is the caller's business, who cancels, and looks again at what is
        there then. So one that answers at once need not be looked at here."""
        clock = asyncio.get_running_loop().time
        began, endpoint, pause = clock(), started.endpoint, QUICK_POLL
        look_at = began + FIRST_LOOK if endpoint else began
        while True:
            if clock() >= look_at:
                seen = await self._containers.find(workspace_id)
                look_at = clock() + LOOK_EVERY
                if seen is None or seen.id != started.id:
                    raise ActionFailed(f"Container {container_name(workspace_id)} was removed while it started")
                if not seen.running:
                    raise await self._exited(workspace_id, seen)
                endpoint = seen.endpoint
            if endpoint and await answers(endpoint, self._config.probe_timeout):
                return
            await asyncio.sleep(pause)
            if clock() - began > QUICK_SECONDS:
                pause = min(max(pause, FIRST_POLL) * 1.5, SLOWEST_POLL)

    async def _exited(self, workspace_id: WorkspaceId, ended: Container) -> ActionFailed:
        words = await self._containers.last_words(ended.id)
        how = f"ended with exit code {ended.exit_code}"
        if ended.oom_killed:
            how = f"was killed: it used more than its {self._config.limits.memory // 2**20} MiB of memory"
        elif ended.status == "paused":
            how = "was paused"
        said = f"; it said last: {words}" if words else ""
        return ActionFailed(f"Container {container_name(workspace_id)} {how} before it answered{said}", words)


def _is_worth_another_try(error: ActionFailed, patience: float) -> bool:
    """With another port, or once the packet filter is back."""
    text = str(error)
    return any(words in text for words in PORT_IN_USE) or (NO_RULE in text and patience >= 0)
