"""The network of an installation: made once, whoever comes first, and again when it is gone."""

import asyncio

import pytest
from docker import APIClient
from structlog.testing import capture_logs

from adapters.docker.firewall import Firewall
from adapters.docker.network import ICC
from domain.errors import ActionFailed
from domain.model import OperationId, WorkspaceId
from domain.observation import ContainerState
from tests.adapters.docker_world import DockerWorld

pytestmark = pytest.mark.docker

OP = OperationId("op-1")


async def test_many_workers_at_once(world: DockerWorld) -> None:
    """They end up with one network, though the engine allows several of one name."""
    workers = [world.another() for _ in range(8)]
    try:
        await asyncio.gather(*(worker._network.ensure() for worker in workers))
        assert len(world.api.networks(names=[world.config.network])) == 1
    finally:
        for worker in workers:
            await worker.close()


async def test_removed_behind_its_back(world: DockerWorld, ws: WorkspaceId) -> None:
    """The next start makes it again."""
    await world.runtime.start(ws, world.image, OP)
    await world.runtime.stop(ws)
    world.api.remove_network(world.config.network)
    await world.runtime.start(ws, world.image, OP)
    assert (await world.runtime.observe(ws, probe=True)).container is ContainerState.READY
    assert len(world.mine()["networks"]) == 1


async def test_somebody_elses(world: DockerWorld, ws: WorkspaceId) -> None:
    """A network that merely has the name may be open to anything: no workspace is put on it."""
    made = world.api.create_network(world.config.network, driver="bridge")
    try:
        with pytest.raises(ActionFailed, match="not of this codehub installation"):
            await world.runtime.start(ws, world.image, OP)
        assert world.container(ws) is None
    finally:
        world.api.remove_network(made["Id"])


async def test_removed_only_when_nobody_runs_on_it(world: DockerWorld, ws: WorkspaceId) -> None:
    """The end of an installation can't cut off a workspace; twice is fine."""
    await world.runtime.start(ws, world.image, OP)
    with pytest.raises(ActionFailed):
        await world.runtime.remove_network()
    assert (await world.runtime.observe(ws, probe=True)).container is ContainerState.READY
    await world.runtime.stop(ws)
    for _ in range(2):
        await world.runtime.remove_network()
        assert world.mine()["networks"] == []


async def test_an_open_default_network(world: DockerWorld, ws: WorkspaceId, monkeypatch: pytest.MonkeyPatch) -> None:
    """No workspace is put where others could reach it: whoever asks for the engine's network is told what it takes."""
    options = world.api.inspect_network("bridge")["Options"]
    opened = {"Options": {**options, ICC: "true"}, "EnableIPv6": False}
    monkeypatch.setattr(APIClient, "inspect_network", lambda _self, _name: opened)
    careless = world.another(engines_network=True)
    try:
        with pytest.raises(ActionFailed, match="--icc=false"):
            await careless.start(ws, world.image, OP)
        assert world.container(ws) is None
    finally:
        await careless.close()


def test_a_machine_without_the_bridge_is_warned_of_once() -> None:
    """Where no rule can be put in, the log says what can be reached and what to do, one time."""
    firewall = Firewall("ch-nosuch", "test")
    with capture_logs() as logs:
        firewall.ensure()
        firewall.ensure()
    assert [entry["event"] for entry in logs] == ["workspaces_can_reach_the_host"]
    assert "0.0.0.0" in logs[0]["detail"]
