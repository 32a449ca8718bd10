"""How the image comes to an engine, on a real one, with images small enough to be made in passing."""

import asyncio
import io
import random
import socket
import tarfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import zstandard
from docker import APIClient

from starter.embedded.errors import EmbeddedError
from starter.ide import registry
from starter.ide.build import built_file
from starter.ide.engine import Engine
from starter.ide.image import ensure_image
from starter.ide.recipe import LABEL, ORIGIN_LABEL, REPOSITORY, Recipe
from tests.cli.installation import stalled
from tests.ide.image_registry import image_registry, logged_in
from tests.ide.told import Told

pytestmark = pytest.mark.docker


@dataclass
class World:
    """An engine, a cache, and a recipe that no other test has."""

    host: str
    cache: Path
    api: APIClient
    recipe: Recipe
    reference: str = field(default_factory=lambda: f"codehub-ide:test-{uuid.uuid4().hex[:8]}")
    told: Told = field(default_factory=Told)

    @property
    def file(self) -> Path:
        return built_file(self.recipe, self.cache / "ide")

    def keep_file(self, content: bytes | None = None) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_bytes(content or zstandard.compress(_tar(self.recipe.fingerprint)))

    def image(self, reference: str | None = None) -> dict[str, Any]:
        return dict(self.api.inspect_image(reference or self.reference))  # type: ignore[no-untyped-call]

    async def ensure(self, *, build: bool = False) -> None:
        await ensure_image(self.host, self.reference, self.told, build=build, cache=self.cache, recipe=self.recipe)


@pytest.fixture
async def world(docker_host: str, tmp_path: Path) -> AsyncIterator[World]:
    async with Engine(docker_host) as engine:
        architecture = await engine.architecture()
    # Nothing listens there.
    recipe = Recipe(architecture=architecture, suite=uuid.uuid4().hex, public_image="127.0.0.1:9/code-server:1")
    api = APIClient(docker_host)
    made = World(docker_host, tmp_path, api, recipe)
    try:
        yield made
    finally:
        for image in api.images(filters={"label": f"{LABEL}={made.recipe.fingerprint}"}):
            api.remove_image(image["Id"], force=True)
        api.close()


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a registry that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


async def test_from_the_cache(world: World) -> None:
    """What this machine has built before is loaded without a network, and runs as the recipe says."""
    world.keep_file()
    await world.ensure()
    image = world.image()
    assert image["Id"] == world.image(world.recipe.reference)["Id"]
    assert image["Config"]["User"] == "1000"
    assert image["Config"]["Entrypoint"] == ["/usr/local/bin/codehub-entrypoint"]
    assert image["Config"]["WorkingDir"] == "/home/coder"
    assert image["Config"]["Labels"][LABEL] == world.recipe.fingerprint
    assert image["Config"]["Labels"][ORIGIN_LABEL] == "built"
    assert world.told.finished == ["ide"]


async def test_nothing_to_do(world: World) -> None:
    """With the image in place nothing happens, nothing is said, and it takes no time."""
    world.keep_file()
    await world.ensure()
    world.file.unlink()
    world.told.steps.clear()
    world.told.finished.clear()
    began, waited = time.monotonic(), stalled()
    await world.ensure()
    took, waited = time.monotonic() - began, stalled() - waited
    # What other programs made it wait for a processor is not its own.
    assert took < 2 + min(waited, 10), (took, waited)
    assert (world.told.steps, world.told.finished) == ([], [])


async def test_died_before_its_name(world: World) -> None:
    """An image that a killed process loaded, but did not name yet, is named by the next."""
    world.keep_file()
    await world.ensure()
    world.file.unlink()
    world.api.remove_image(world.reference, noprune=True)
    await world.ensure()
    assert world.image()["Config"]["Labels"][LABEL] == world.recipe.fingerprint


async def test_two_at_once(world: World) -> None:
    """Two processes that need the same image load it once."""
    world.keep_file()
    await asyncio.gather(world.ensure(), world.ensure())
    assert [text for _, text in world.told.steps].count("loading the image into the engine") == 1


@pytest.mark.parametrize("rest", [b"", b"\xff" * 100_000])
async def test_damaged_file(world: World, rest: bytes) -> None:
    """A file in the cache that breaks off, or goes on with rubbish, is thrown away: not loaded, not met again."""
    whole = zstandard.compress(_tar(random.Random(1).randbytes(1_000_000).hex()))
    world.keep_file(whole[: len(whole) // 2] + rest)
    with pytest.raises(EmbeddedError, match="can't be pulled"):
        await world.ensure()
    assert not world.file.exists()


async def test_pulled(world: World) -> None:
    """Where a registry answers, the public image is pulled and gets our entrypoint; nothing else is left behind."""
    async with image_registry(world.recipe.architecture) as public:
        world.recipe = replace(world.recipe, public_image=public)
        await world.ensure()
    config = world.image()["Config"]
    assert config["Entrypoint"] == ["/usr/local/bin/codehub-entrypoint"]
    assert not config["Cmd"]
    assert config["User"] == "1000"
    assert "THEIRS=1" in config["Env"]
    assert config["Labels"][ORIGIN_LABEL] == "pulled"
    files = _files(world.api, world.reference)
    assert files["from-afar"].size == len(b"pulled\n")
    assert files["usr/local/bin/codehub-entrypoint"].mode & 0o777 == 0o755
    assert "usr/local/share/codehub/settings.json" in files
    # By name: those of other tests on this engine come and go.
    assert world.api.containers(all=True, filters={"name": f"{REPOSITORY}-{world.recipe.fingerprint}"}) == []
    world.api.remove_image(public, force=True)


async def test_silent_registry(world: World, silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry that doesn't answer costs seconds, not minutes, and the message is one line that says what to do."""
    monkeypatch.setattr(registry, "ANSWER_SECONDS", 1.0)
    world.recipe = replace(world.recipe, public_image=f"{silent}/code-server:1")
    began, waited = time.monotonic(), stalled()
    with pytest.raises(EmbeddedError, match=r"no answer for 1 s.*WORKSPACE_IMAGE") as caught:
        await world.ensure()
    took, waited = time.monotonic() - began, stalled() - waited
    assert took < 4 + min(waited, 10), (took, waited)
    assert "\n" not in caught.value.message


async def test_older_one_will_do(world: World) -> None:
    """Where the image of a new recipe can't be had, the one of the former recipe goes on serving."""
    world.keep_file()
    await world.ensure()
    former = world.image()["Id"]
    world.recipe = replace(world.recipe, packages=("new",))
    await world.ensure()
    assert world.image()["Id"] == former
    world.api.remove_image(former, force=True)


async def test_somebodys_own(world: World) -> None:
    """An image of this name without our label was made by a person, and stays as it is."""
    repository, _, tag = world.reference.partition(":")
    world.api.import_image_from_data(_tar("theirs"), repository=repository, tag=tag)
    await world.ensure()
    assert not world.image()["Config"]["Labels"]
    world.api.remove_image(world.reference, force=True)


async def test_another_image(world: World) -> None:
    """An image that a person names is pulled as it is."""
    async with image_registry(world.recipe.architecture) as named:
        await ensure_image(world.host, named, world.told, cache=world.cache)
        assert world.image(named)["Config"]["Entrypoint"] == ["/theirs"]
        world.api.remove_image(named, force=True)


@pytest.mark.filterwarnings("ignore:docker-credential-that-nobody-has:UserWarning")
async def test_another_image_behind_a_login(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of DOCKER_CONFIG, as the worker's; where its helper is not there, it is asked for without, and refused."""
    login = "ide:a password"
    async with image_registry(world.recipe.architecture, login) as world.reference:
        broken = tmp_path / "broken"
        broken.mkdir()
        (broken / "config.json").write_text('{"credsStore": "that-nobody-has"}')
        for folder in (tmp_path / "none", broken):
            monkeypatch.setenv("DOCKER_CONFIG", str(folder))
            monkeypatch.setenv("HOME", str(folder))
            with pytest.raises(EmbeddedError, match="can't be pulled"):
                await world.ensure()
        monkeypatch.setenv("DOCKER_CONFIG", str(logged_in(tmp_path / "docker", world.reference, login)))
        await world.ensure()
        assert world.image()["Config"]["Entrypoint"] == ["/theirs"]
        world.api.remove_image(world.reference, force=True)


async def test_another_image_not_to_be_had(world: World) -> None:
    """One that can't be pulled is named, with what to do, in one line."""
    with pytest.raises(EmbeddedError, match=r"WORKSPACE_IMAGE=127\.0\.0\.1:9/mine:1 can't be pulled") as caught:
        await ensure_image(world.host, "127.0.0.1:9/mine:1", world.told, cache=world.cache)
    assert "\n" not in caught.value.message


async def test_no_engine(tmp_path: Path) -> None:
    """Without an engine the message says so, in one line."""
    with pytest.raises(EmbeddedError, match="Docker engine") as caught:
        await ensure_image(f"unix://{tmp_path}/nothing.sock", "codehub-ide:latest", Told(), cache=tmp_path)
    assert "\n" not in caught.value.message


def _tar(text: str) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        entry = tarfile.TarInfo("hello")
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text.encode()))
    return content.getvalue()


def _files(api: APIClient, image: str) -> dict[str, tarfile.TarInfo]:
    made = api.create_container(image, ["nothing"])
    try:
        content = io.BytesIO(b"".join(api.export(made["Id"])))
    finally:
        api.remove_container(made["Id"], force=True)
    with tarfile.open(fileobj=content) as tar:
        return {entry.name: entry for entry in tar.getmembers()}
