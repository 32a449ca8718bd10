"""Containers that never run, made so that the engine reaches files: they could do nothing if they did (PROMISE 36)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from domain.model import WorkspaceId
from domain.naming import volume_name
from starter.ide.engine import Engine
from starter.ide.recipe import File
from tests.adapters.docker_world import DockerWorld
from tests.docs.test_docs import ROOT

pytestmark = pytest.mark.docker

MAKES = {"adapters/docker/containers.py", "adapters/docker/homes.py", "starter/ide/engine.py"}
"""Of these, the first one's are workspaces: tests/adapters/test_docker_hardening.py."""


def assert_held_in(found: Mapping[str, Any]) -> None:
    host = found["HostConfig"]
    assert host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert not host["Privileged"]
    assert not host["CapAdd"]
    assert not host["Binds"]
    assert host["NetworkMode"] == "none"
    for limit in ("Memory", "MemorySwap", "NanoCpus", "PidsLimit"):
        assert host[limit] > 0, limit
    assert found["State"]["Status"] == "created"


async def test_what_reads_and_writes_homes(world: DockerWorld, ws: WorkspaceId) -> None:
    async with world.runtime.homes(direct=False).read(ws):
        found = world.api.inspect_container(f"{volume_name(ws)}-io")
    assert_held_in(found)
    assert [(mount["Type"], mount["Name"]) for mount in found["Mounts"]] == [("volume", volume_name(ws))]


async def test_what_images_are_made_by(world: DockerWorld) -> None:
    via, made = f"{world.config.installation}-via", f"codehub-test:{world.config.installation}"
    found: list[Mapping[str, Any]] = []

    class Watched(Engine):
        async def _call(self, method: str, path: str, **arguments: Any) -> Any:
            if method == "PUT":
                found.append(world.api.inspect_container(via))
            return await super()._call(method, path, **arguments)

    world.forget_image(made)
    async with Watched(world.host) as engine:
        await engine.derive(world.image, made, [], [File("/etc/told", b"yes", 0o644)], via)
    (container,) = found
    assert_held_in(container)


def test_nothing_else_makes_containers() -> None:
    """Whoever adds one adds it here, with what holds it in."""
    sources = [
        path
        for folder in ("adapters", "starter", "activities", "coordinator")
        for path in (ROOT / folder).rglob("*.py")
    ]
    found = {path for path in sources if _makes_one(path)}
    assert {str(path.relative_to(ROOT)) for path in found} == MAKES


def _makes_one(path: Path) -> bool:
    text = path.read_text(encoding="utf-8")
    return any(call in text for call in (".create_container", '"/containers/create"'))
