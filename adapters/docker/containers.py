"""Containers of workspaces: looking, making, running, ending."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from adapters.docker.config import DockerConfig
from adapters.docker.engine import Engine
from adapters.docker.failures import Conflict, NotThere
from adapters.docker.labels import OPERATION, WORKSPACE, Labels, Role
from adapters.docker.ports import Ports
from adapters.docker.spec import container_spec
from adapters.runtime import PortsTaken
from domain.errors import ActionFailed
from domain.model import OperationId, WorkspaceId
from domain.naming import container_name, is_workspace_id

log = structlog.get_logger()

LOG_LINES = 20
LOG_CHARS = 500
GONE_POLL = 0.05
WILDCARDS = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - compared with, not bound


@dataclass(frozen=True, slots=True)
class Container:
    """What the engine says of the container that has a workspace's name."""

    id: str
    ours: bool
    image_ref: str
    op_id: str | None
    status: str
    endpoint: str | None
    exit_code: int = 0
    oom_killed: bool = False

    @property
    def running(self) -> bool:
        """A paused container answers nobody and doesn't run."""
        return self.status == "running"


class Containers:
    def __init__(self, engine: Engine, config: DockerConfig) -> None:
        self._engine = engine
        self._config = config
        self._labels = Labels(config.installation)
        self._init = True
        self._ports = Ports()

    async def find(self, workspace_id: WorkspaceId) -> Container | None:
        try:
            found = await self._engine.look(lambda api: api.inspect_container(container_name(workspace_id)))
        except NotThere:
            return None
        return self._inspected(workspace_id, found)

    async def list(self) -> Mapping[WorkspaceId, Container]:
        filters = self._labels.filter(Role.WORKSPACE)
        found = await self._engine.look(lambda api: api.containers(all=True, filters=filters))
        return dict(self._listed(found))

    async def choose_port(self, taken: PortsTaken) -> int:
        return await self._ports.next(taken)

    def at(self, port: int) -> str | None:
        """The endpoint of a container that was made with this port, once it runs."""
        return self._endpoint([(self._config.publish_host, port)])

    async def create(
        self, workspace_id: WorkspaceId, image_ref: str, op_id: OperationId, port: int | None = None
    ) -> str:
        """The id of a container that does not run yet; Conflict when there is one, NoImage."""
        spec = container_spec(self._config, workspace_id, image_ref, op_id, init=self._init, host_port=port)
        name = container_name(workspace_id)
        made = await self._engine.act(
            lambda api: api.create_container_from_config(spec, name)  # type: ignore[no-untyped-call]
        )
        return str(made["Id"])

    async def run(self, container_id: str) -> None:
        """Start it; one that runs already is left alone."""
        try:
            await self._engine.act(lambda api: api.start(container_id))
        except ActionFailed as error:
            if not self._init or "docker-init" not in str(error):
                raise
            self._init = False
            log.warning("docker_init_missing", detail="workspaces run without an init: zombies stay")
            raise NotThere(f"{error}; tried again without docker-init") from error

    async def end(self, container: Container) -> None:
        """SIGTERM, grace, remove; the volume stays. Fine when it is gone, or when another one removes it."""
        try:
            if container.status in {"running", "paused", "restarting"}:
                grace = self._config.stop_grace_seconds
                await self._engine.act(lambda api: api.stop(container.id, timeout=grace))
            await self.remove(container.id)
        except NotThere:
            return

    async def remove(self, container_id: str) -> None:
        try:
            await self._engine.act(lambda api: api.remove_container(container_id, v=False, force=True))
        except NotThere:
            return
        except Conflict:
            # "removal … is already in progress", by an attempt that was given up or by somebody else.
            await self._gone(container_id)

    async def last_words(self, container_id: str) -> str:
        """The end of its log, for an error message."""
        try:
            text = await self._engine.look(lambda api: api.logs(container_id, stdout=True, stderr=True, tail=LOG_LINES))
        except ActionFailed:
            return ""
        return text.decode(errors="replace").strip()[-LOG_CHARS:]

    async def _gone(self, container_id: str) -> None:
        try:
            async with asyncio.timeout(self._config.work_timeout):
                while True:
                    await self._engine.look(lambda api: api.inspect_container(container_id))
                    await asyncio.sleep(GONE_POLL)
        except NotThere:
            return
        except TimeoutError as error:
            raise ActionFailed(f"Docker does not finish removing container {container_id[:12]}") from error

    def _inspected(self, workspace_id: WorkspaceId, found: Mapping[str, Any]) -> Container:
        labels = found["Config"].get("Labels")
        state = found["State"]
        ports = found["NetworkSettings"].get("Ports") or {}
        bindings = ports.get(f"{self._config.workspace_port}/tcp") or []
        return Container(
            id=found["Id"],
            ours=self._labels.owns(labels, Role.WORKSPACE, workspace_id),
            image_ref=found["Config"]["Image"],
            op_id=(labels or {}).get(OPERATION),
            status=state["Status"],
            endpoint=self._endpoint((b["HostIp"], b["HostPort"]) for b in bindings),
            exit_code=state["ExitCode"],
            oom_killed=state["OOMKilled"],
        )

    def _listed(self, found: Iterable[Mapping[str, Any]]) -> Iterable[tuple[WorkspaceId, Container]]:
        for item in found:
            labels = item["Labels"]
            # Labels can be put on anything by anybody: one odd container must not hide all the others.
            workspace_id = WorkspaceId(labels.get(WORKSPACE, ""))
            if not is_workspace_id(workspace_id) or f"/{container_name(workspace_id)}" not in item["Names"]:
                continue
            bindings = (
                (port.get("IP", ""), port["PublicPort"])
                for port in item["Ports"]
                if port["PrivatePort"] == self._config.workspace_port and port.get("PublicPort")
            )
            yield (
                workspace_id,
                Container(
                    id=item["Id"],
                    ours=True,
                    image_ref=item["Image"],
                    op_id=labels.get(OPERATION),
                    status=item["State"],
                    endpoint=self._endpoint(bindings),
                ),
            )

    def _endpoint(self, bindings: Iterable[tuple[str, str | int]]) -> str | None:
        for host, port in bindings:
            if host in WILDCARDS:
                host = "127.0.0.1"  # noqa: PLW2901 - every address: the nearest one is as good as any
            return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return None
