"""Which network `codehub up` tells its worker to put workspaces on. tests/cli/test_up.py looks where they are then."""

import asyncio
import functools
import sys
from pathlib import Path

import pytest

from settings import Settings
from starter.embedded import engine, stack
from starter.embedded.child import Child
from starter.embedded.dockerd import Dockerd
from starter.embedded.resolver import default_network_resolves
from starter.embedded.stack import Stack
from starter.up import _environment
from tests.embedded.test_stack import only

USABLE, LOOPBACK = "nameserver 203.0.113.1\n", "nameserver 127.0.0.1\n"


@pytest.fixture
def engine_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where none is reachable. Nothing is asked of it here, so that a process with its name is enough."""

    async def nobody_answers() -> None: ...

    def child(_self: Dockerd) -> Child:
        argv = (sys.executable, "-c", "import time; time.sleep(600)")
        return Child(name="dockerd", argv=argv, ready=lambda: asyncio.sleep(0))

    monkeypatch.setattr(engine, "reachable_engine", nobody_answers)
    monkeypatch.setattr(Dockerd, "installed", staticmethod(lambda: True))
    monkeypatch.setattr(Dockerd, "child", child)


@pytest.mark.parametrize(
    ("text", "named", "told"),
    [
        pytest.param(USABLE, None, "engine", id="names resolve there"),
        pytest.param(LOOPBACK, None, None, id="no name would"),
        pytest.param(USABLE, "own", "own", id="who says own gets it"),
        pytest.param(LOOPBACK, "engine", "engine", id="who says engine gets it"),
        pytest.param(USABLE, "", "engine", id="an empty variable says nothing"),
    ],
)
@pytest.mark.usefixtures("engine_of_its_own")
async def test_an_engine_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, named: str | None, told: str | None
) -> None:
    """The engine's default network where names can be resolved on it, unless the environment says otherwise."""
    resolv_conf = tmp_path / "resolv.conf"
    resolv_conf.write_text(text)
    resolves = functools.partial(default_network_resolves, resolv_conf)
    monkeypatch.setattr(stack, "default_network_resolves", resolves)
    monkeypatch.delenv("WORKSPACE_NETWORK", raising=False)
    if named is not None:
        monkeypatch.setenv("WORKSPACE_NETWORK", named)
    async with Stack(only(tmp_path / "data", "docker_host")) as started:
        assert _environment(Settings(), started, "").get("WORKSPACE_NETWORK") == told


async def test_an_engine_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its default network is not ours to choose, whatever can be resolved there."""
    monkeypatch.setattr(stack, "default_network_resolves", lambda: True)
    monkeypatch.delenv("WORKSPACE_NETWORK", raising=False)
    async with Stack(only(tmp_path / "data")) as started:
        assert "WORKSPACE_NETWORK" not in _environment(Settings(), started, "")
