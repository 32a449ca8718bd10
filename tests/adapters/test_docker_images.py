"""Images that are not on the engine yet, with a real registry."""

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from docker.errors import ImageNotFound
from structlog.testing import capture_logs

from adapters.docker.config import DockerConfig
from adapters.docker.engine import Engine
from adapters.docker.images import Images, pull_error
from domain.errors import ActionFailed, ImagePullFailed, Unreachable
from domain.model import OperationId, WorkspaceId
from domain.observation import ContainerState, Presence, Resources
from tests.adapters.docker_registry import registry
from tests.adapters.docker_world import DockerWorld, new_workspace
from tests.ide.image_registry import image_registry, logged_in
from tests.ports import free_port

OP = OperationId("op-1")


@pytest.fixture(scope="module")
def registry_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with registry(tmp_path_factory.mktemp("registry")) as host:
        yield host


@pytest.fixture
def remote_image(world: DockerWorld, registry_host: str) -> Iterator[str]:
    """An image that the registry has and the engine has not."""
    name, tag = f"{registry_host}/workspace-{uuid.uuid4().hex[:8]}", "1"
    world.api.tag(world.image, name, tag)
    pushed = world.api.push(name, tag)
    assert "errorDetail" not in pushed, pushed
    world.api.remove_image(f"{name}:{tag}")
    yield f"{name}:{tag}"
    with suppress(ImageNotFound):
        world.api.remove_image(f"{name}:{tag}", force=True)


@pytest.mark.docker
async def test_pulled(world: DockerWorld, ws: WorkspaceId, remote_image: str) -> None:
    """A missing image is fetched on the way."""
    await world.runtime.start(ws, remote_image, OP)
    assert (await world.runtime.observe(ws, probe=True)).container is ContainerState.READY


@pytest.mark.docker
async def test_pulled_behind_a_login(world: DockerWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker's: an engine has none. It is taken where it was added after the start, if there was none before."""
    login = "worker:a password"
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("HOME", str(tmp_path))
    engine = Engine(DockerConfig("login", docker_host=world.host))
    images = Images(engine)
    async with image_registry(world.api.version()["Arch"], login) as reference:
        try:
            with pytest.raises(ImagePullFailed, match=reference):
                await images.fetch(reference)
            logged_in(tmp_path / "docker", reference, login)
            await images.fetch(reference)
            world.api.remove_image(reference, force=True)
        finally:
            await engine.close()


@pytest.mark.docker
async def test_pulled_once(world: DockerWorld, remote_image: str) -> None:
    """However many workspaces wait for it."""
    waiting = [new_workspace() for _ in range(4)]
    for ws in waiting:
        await world.runtime.create_volume(ws, OP)
    with capture_logs() as logs:
        await asyncio.gather(*(world.runtime.start(ws, remote_image, OP) for ws in waiting))
    assert [entry["event"] for entry in logs].count("image_pull_started") == 1
    seen = await world.runtime.observe_all()
    assert {seen[ws].container for ws in waiting} == {ContainerState.READY}


@pytest.mark.docker
async def test_not_in_the_registry(world: DockerWorld, ws: WorkspaceId, remote_image: str, registry_host: str) -> None:
    """Neither tag nor repository: it can't be had, and trying again is of no use."""
    for missing in (remote_image.replace(":1", ":2"), f"{registry_host}/nothing:1"):
        for _ in range(2):
            with pytest.raises(ImagePullFailed, match=missing):
                await world.runtime.start(ws, missing, OP)
        assert await world.runtime.observe(ws, probe=True) == Resources(volume=Presence.PRESENT)


@pytest.mark.docker
async def test_registry_that_is_not_there(world: DockerWorld, ws: WorkspaceId) -> None:
    """It may come back: Unreachable."""
    with pytest.raises(Unreachable, match="registry"):
        await world.runtime.start(ws, f"127.0.0.1:{free_port()}/workspace:1", OP)
    assert await world.runtime.observe(ws, probe=True) == Resources(volume=Presence.PRESENT)


@pytest.mark.docker
async def test_registry_that_fails(world: DockerWorld, ws: WorkspaceId) -> None:
    """A registry in trouble is Unreachable, not an image that can't be had."""

    async def trouble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(trouble, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Unreachable):
            await world.runtime.start(ws, f"127.0.0.1:{port}/workspace:1", OP)


@pytest.mark.docker
async def test_registry_that_hangs(world: DockerWorld, ws: WorkspaceId) -> None:
    """The caller's deadline is kept, and nobody is kept from another image meanwhile."""
    hold = asyncio.Event()

    async def hang(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await hold.wait()
        writer.close()

    async with await asyncio.start_server(hang, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        pulling = asyncio.ensure_future(world.runtime.start(ws, f"127.0.0.1:{port}/workspace:1", OP))
        other = new_workspace()
        await world.runtime.create_volume(other, OP)
        await world.runtime.start(other, world.image, OP)
        assert not pulling.done()
        pulling.cancel()
        # Long before the registry, or the engine's patience with it, would let it go.
        async with asyncio.timeout(10):
            await asyncio.wait({pulling})
        hold.set()


@pytest.mark.parametrize(
    ("status", "text", "expected"),
    [
        (404, "manifest for x:1 not found: manifest unknown: manifest unknown", ImagePullFailed),
        (
            404,
            "pull access denied for x, repository does not exist or may require 'docker login': denied",
            ImagePullFailed,
        ),
        (500, "unauthorized: authentication required", ImagePullFailed),
        (500, "Get https://r/v2/x/manifests/1: no basic auth credentials", ImagePullFailed),
        (400, "invalid reference format", ImagePullFailed),
        (None, "no matching manifest for linux/amd64 in the manifest list entries", ImagePullFailed),
        (500, 'Get "https://r/v2/": dial tcp: lookup r on 10.0.0.1:53: no such host', Unreachable),
        (500, 'Get "https://r/v2/": dial tcp 10.0.0.2:443: connect: permission denied', Unreachable),
        (500, 'Get "https://r/v2/": net/http: TLS handshake timeout', Unreachable),
        (500, "received unexpected HTTP status: 503 Service Unavailable", Unreachable),
        (500, "toomanyrequests: You have reached your pull rate limit", Unreachable),
        (None, "unexpected EOF", Unreachable),
        (None, "something never heard of", Unreachable),
        (None, "write /var/lib/docker/tmp/x: no space left on device", ActionFailed),
    ],
)
def test_what_a_failed_pull_means(status: int | None, text: str, expected: type[Exception]) -> None:
    """Terminal only what no other try can change; the registry's own words are in the message."""
    error = pull_error("r/x:1", status, text)
    assert type(error) is expected
    assert text in str(error)


@pytest.mark.parametrize(
    ("image", "status", "text"),
    [
        ("acme/timeout-tool", 404, "manifest for acme/timeout-tool:latest not found: manifest unknown"),
        ("acme/eof", 404, "pull access denied for acme/eof, repository does not exist or may require 'docker login'"),
        ("eof:1", None, "manifest for eof:1 not found: manifest unknown: manifest unknown"),
        ("acme/eof:timeout", 500, 'Get "https://registry/v2/acme/eof/manifests/timeout": unauthorized'),
        ("x509.example.com/acme/tool:1", 500, 'Get "https://x509.example.com/v2/acme/tool/manifests/1": denied'),
        ("localhost:5000/eof", None, "manifest for localhost:5000/eof:latest not found"),
        ("acme/tool@sha256:0e0f", 404, "manifest for acme/tool@sha256:0e0f not found"),
        ("acme/tool:1", 404, "not found, after a timeout of the mirror"),
    ],
)
def test_a_name_is_no_trouble(image: str, status: int | None, text: str) -> None:
    """An image, a tag or a registry may be called like what a network says when it fails."""
    assert type(pull_error(image, status, text)) is ImagePullFailed


@pytest.mark.parametrize(
    ("image", "text"),
    [
        ("acme/timeout:1", 'Get "https://registry/v2/": dial tcp 10.0.0.2:443: i/o timeout'),
        ("timeout", 'Get "https://registry/v2/": context deadline exceeded (Client.Timeout exceeded)'),
        ("acme/unknown", 'Get "https://registry/v2/acme/unknown/manifests/1": unexpected EOF'),
        ("denied.example.com/x:1", "dial tcp: lookup denied.example.com: no such host"),
    ],
)
def test_trouble_is_trouble_whatever_the_name(image: str, text: str) -> None:
    """And a name that sounds final does not make it so."""
    assert type(pull_error(image, 500, text)) is Unreachable
