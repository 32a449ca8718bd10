"""A Docker engine as a test sees it: a runtime of its own, a person at the engine, and a clean end."""

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from docker import APIClient
from docker.errors import NotFound

from adapters.docker import DockerConfig, DockerRuntime, Limits
from adapters.docker.network import BRIDGE, ICC
from domain.model import OperationId, WorkspaceId
from domain.naming import container_name, volume_name

SMALL = Limits(memory=64 * 1024 * 1024, cpus=1.0, pids=64)
PORT = 8080


class DockerWorld:
    def __init__(self, docker_host: str, image: str, installation: str, **options: Any) -> None:
        self.host = docker_host
        self.image = image
        self.unobtainable_image = "Not/A:Valid:Image"
        # A person with the docker command: sees and does everything, past the runtime.
        self.api = APIClient(docker_host, timeout=30)
        self.config = DockerConfig(
            # Of the run, so that the run's end finds what a killed test left.
            f"{installation}-{uuid.uuid4().hex[:8]}",
            docker_host=docker_host,
            limits=SMALL,
            stop_grace_seconds=2,
        )
        self.config = replace(self.config, **options)
        self.runtime = DockerRuntime(self.config)
        self._images: list[str] = []

    def another(self, **options: Any) -> DockerRuntime:
        """A further worker of the same installation; whoever makes it closes it."""
        return DockerRuntime(replace(self.config, **options))

    def drop_container(self, workspace_id: WorkspaceId) -> None:
        self.api.remove_container(container_name(workspace_id), force=True)

    def kill_container(self, workspace_id: WorkspaceId) -> None:
        self.api.kill(container_name(workspace_id), "SIGKILL")
        self.api.wait(container_name(workspace_id))

    def drop_volume(self, workspace_id: WorkspaceId) -> None:
        self.api.remove_volume(volume_name(workspace_id))

    def container(self, workspace_id: WorkspaceId) -> dict[str, Any] | None:
        try:
            return dict(self.api.inspect_container(container_name(workspace_id)))
        except NotFound:
            return None

    def volume(self, workspace_id: WorkspaceId) -> dict[str, Any] | None:
        try:
            return dict(self.api.inspect_volume(volume_name(workspace_id)))
        except NotFound:
            return None

    def image_running(self, *command: str) -> str:
        """An image like the test image that runs another command."""
        made = self.api.create_container(self.image)
        tag = f"codehub-test:{uuid.uuid4().hex}"
        try:
            repository, _, version = tag.partition(":")
            self.api.commit(made["Id"], repository, version, changes=f"ENTRYPOINT {json.dumps(command)}")
        finally:
            self.api.remove_container(made["Id"], force=True)
        self._images.append(tag)
        return tag

    def forget_image(self, tag: str) -> None:
        """In the end."""
        self._images.append(tag)

    def inside(self, workspace_id: WorkspaceId, command: str) -> tuple[int, str]:
        """Exit code and output of a shell command in the workspace."""
        made = self.api.exec_create(container_name(workspace_id), ["/bin/sh", "-c", command])
        output = self.api.exec_start(made["Id"])
        return self.api.exec_inspect(made["Id"])["ExitCode"], output.decode()

    def mine(self) -> dict[str, list[Any]]:
        """Everything that carries this installation's label."""
        label = {"label": f"codehub.installation={self.config.installation}"}
        return {
            "containers": self.api.containers(all=True, filters=label),
            "volumes": self.api.volumes(filters=label)["Volumes"] or [],
            "networks": self.api.networks(filters=label),
        }

    async def clean(self) -> None:
        for container in self.mine()["containers"]:
            self.api.remove_container(container["Id"], force=True)
        for volume in self.mine()["volumes"]:
            self.api.remove_volume(volume["Name"])
        for image in self._images:
            self.api.remove_image(image, force=True)
        # Without the runtime's own connection, which a test may have cut.
        keeper = DockerRuntime(replace(self.config, docker_host=self.host))
        await keeper.remove_network()
        await keeper.close()
        await self.runtime.close()
        left = self.mine()
        self.api.close()
        assert not any(left.values()), left


@contextlib.asynccontextmanager
async def docker_world(docker_host: str, image: str, installation: str, **options: Any) -> AsyncIterator[DockerWorld]:
    world = DockerWorld(docker_host, image, installation, **options)
    try:
        yield world
    finally:
        await world.clean()


def default_bridge(docker_host: str) -> str:
    """Of the engine's default network. The test is skipped where the machine's own engine has that one open."""
    with contextlib.closing(APIClient(docker_host)) as api:
        options = api.inspect_network("bridge")["Options"]
    if options.get(ICC) != "false":
        pytest.skip("this machine's own engine lets containers of its default network reach each other")
    return str(options[BRIDGE])


def new_workspace() -> WorkspaceId:
    return WorkspaceId(str(uuid.uuid4()))


def new_operation() -> OperationId:
    return OperationId(str(uuid.uuid4()))


async def eventually(condition: Callable[[], bool], seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)
