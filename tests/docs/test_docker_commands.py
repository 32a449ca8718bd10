"""Docker's own commands in the docs, as they stand there, at a real engine."""

import asyncio
import os
import re
import shlex
import shutil
import subprocess
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from adapters.docker.config import DockerConfig
from adapters.docker.engine import Engine
from adapters.docker.images import Images
from domain.errors import ImagePullFailed
from domain.model import OperationId, WorkspaceId
from domain.observation import Presence
from tests.adapters.docker_registry import registry
from tests.adapters.docker_world import DockerWorld, docker_world, new_workspace
from tests.docs.test_commands import commands_of
from tests.docs.test_docs import ROOT
from tests.ide.image_registry import image_registry

pytestmark = pytest.mark.docker
OP = OperationId("op-1")


@pytest.fixture
async def world(docker_host: str, test_image: str, installation: str) -> AsyncIterator[DockerWorld]:
    if shutil.which("docker") is None:
        pytest.skip("no docker command")
    async with docker_world(docker_host, test_image, installation) as made:
        yield made


@pytest.fixture
async def ws(world: DockerWorld) -> WorkspaceId:
    """One that runs."""
    workspace = new_workspace()
    await world.runtime.create_volume(workspace, OP)
    await world.runtime.start(workspace, world.image, OP)
    return workspace


@pytest.fixture(scope="module")
def registry_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with registry(tmp_path_factory.mktemp("registry")) as host:
        yield host


def documented(start: str) -> str:
    """The one command of the docs that begins so."""
    (found,) = {line.partition("  #")[0].strip() for _, line in commands_of("docker") if line.startswith(start)}
    return found


async def test_looking_around(world: DockerWorld, ws: WorkspaceId) -> None:
    """The listings find what codehub made."""
    assert "Server Version" in await run(world, documented("docker info"))
    assert f"ws-{ws}" in await run(world, documented("docker ps"))
    for listing in {line for _, line in commands_of("docker volume ls")}:
        assert f"ws-{ws}-home" in await run(world, listing), listing


async def test_a_home_that_is_put_back_by_hand(world: DockerWorld, ws: WorkspaceId, tmp_path: Path) -> None:
    """The runbook of DataLost: with these labels it is the workspace's home again, with what the backup holds."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("still here")
    inspected = documented("docker volume inspect NAME").replace("NAME", f"ws-{ws}-home")
    (installation,) = re.findall(r'"codehub.installation": "([^"]+)"', await run(world, inspected))
    await world.runtime.stop(ws)
    world.drop_volume(ws)
    assert (await world.runtime.observe(ws, probe=False)).volume is Presence.ABSENT
    (block,) = re.findall(r"^```\n(docker volume create.*?)^```", _runbook(), re.MULTILINE | re.DOTALL)
    script = block.replace("INSTALLATION", installation).replace("{id}", ws).replace("/backup", str(tmp_path))
    await run(world, script)
    assert (await world.runtime.observe(ws, probe=False)).volume is Presence.PRESENT
    await world.runtime.start(ws, world.image, OP)
    assert await run(world, f"docker exec ws-{ws} cat /home/coder/thesis.txt") == "still here"


async def test_a_container_whose_volume_is_gone(world: DockerWorld, ws: WorkspaceId, tmp_path: Path) -> None:
    """The runbook of ContainerWithoutVolume: what is in it can be saved, before it goes."""
    await run(world, f"docker exec ws-{ws} sh -c 'echo saved > /home/coder/thesis.txt'")
    await run(world, documented("docker cp").replace("{id}", ws), tmp_path)
    assert (tmp_path / "saved" / "thesis.txt").read_text() == "saved\n"
    await run(world, documented("docker rm").replace("{id}", ws))
    assert world.container(ws) is None


async def test_a_network_that_nobody_uses_any_more(world: DockerWorld, ws: WorkspaceId) -> None:
    """After the engine's own has taken its place: it is found, and removed once the last container has left it."""
    listing = documented("docker network ls")
    assert world.config.network in await run(world, listing)
    await world.runtime.stop(ws)
    await run(world, documented("docker network rm").replace("NAME", world.config.network))
    assert world.config.network not in await run(world, listing)


async def test_images_by_name(world: DockerWorld, registry_host: str) -> None:
    """`docker push` as production.md has it, `docker pull` as the runbook, with a registry on this machine; and the tag
    that keeps a former version."""
    pushed = documented("docker push").replace("registry.example.com", registry_host)
    name = pushed.split()[-1]
    try:
        repository, _, tag = name.rpartition(":")
        world.api.tag(world.image, repository, tag)
        await run(world, pushed)
        world.api.remove_image(name)
        await run(world, documented("docker pull IMAGE").replace("IMAGE", name))
        _, _, _, former = shlex.split(documented("docker tag"))
        await run(world, f"docker tag {name} {former}-test")
        world.api.remove_image(f"{former}-test")
    finally:
        world.api.remove_image(name, force=True)
    with pytest.raises(AssertionError, match=r"not found|unknown"):
        await run(world, documented("docker pull IMAGE").replace("IMAGE", f"{registry_host}/none:1"))


async def test_logins_at_a_private_registry(
    world: DockerWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `docker login` has written, in either way, is what the worker pulls with."""
    login = "me:a-password"
    engine = Engine(DockerConfig("login", docker_host=world.host))
    async with image_registry(world.api.version()["Arch"], login) as reference:
        server = reference.partition("/")[0]
        for command, folder in (
            (documented("docker login registry"), tmp_path / ".docker"),
            (documented("docker --config"), tmp_path / "docker"),
        ):
            typed = command.replace("/etc/codehub", str(tmp_path)).replace("registry.example.com", server)
            monkeypatch.setenv("DOCKER_CONFIG", str(folder))
            with pytest.raises(ImagePullFailed):
                await Images(engine).fetch(reference)
            await run(world, f"echo a-password | {typed} -u me --password-stdin", tmp_path)
            try:
                await Images(engine).fetch(reference)
            finally:
                world.api.remove_image(reference, force=True)
            await engine.close()
            engine = Engine(DockerConfig("login", docker_host=world.host))
    await engine.close()


async def test_a_worker_in_a_container(world: DockerWorld, tmp_path: Path) -> None:
    """`docker run` of operations.md: the engine takes its options, and the settings of both files are there. The image
    is another one, which tells what it was given."""
    for name in ("codehub.env", "host.env"):
        shutil.copy(ROOT / "deploy" / "systemd" / "codehub.env.example", tmp_path / name)
    (tmp_path / "host.env").write_text("NODE_ADDRESS=10.0.0.12\n")
    name = f"codehub-worker-{uuid.uuid4().hex[:8]}"
    command = documented("docker run -d").replace("--name codehub-worker", f"--name {name}")
    command = command.replace("/etc/codehub", str(tmp_path)).replace("codehub:0.1.0", f"--entrypoint sh {world.image}")
    socket = world.host.removeprefix("unix://")
    command = command.replace("/var/run/docker.sock:", f"{socket}:").replace("worker --node b", "-c 'env; id -u'")
    try:
        await run(world, command)
        await run(world, f"docker wait {name} || docker stop -t 0 {name}")
        told = await run(world, f"docker logs {name}")
        assert "NODE_ADDRESS=10.0.0.12" in told
        assert "TTL_STANDBY_SECONDS=10800" in told
        assert told.split()[-1] == "0"
    finally:
        world.api.remove_container(name, force=True)


async def run(world: DockerWorld, script: str, folder: Path | None = None) -> str:
    environment = {"PATH": os.environ["PATH"], "DOCKER_HOST": world.host, "HOME": str(folder or "/nonexistent")}
    done = await asyncio.to_thread(
        subprocess.run,
        ["sh", "-euc", script],
        cwd=folder,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _runbook() -> str:
    return (ROOT / "docs" / "runbook.md").read_text()
