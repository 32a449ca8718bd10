"""Who may reach a node: the rule of docs/operations.md, on a real network with a real engine."""

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest

from domain.model import OperationId
from tests.adapters.docker_world import default_bridge, docker_world, new_workspace
from tests.docs.test_commands import commands_of
from tests.neighbours import Neighbours, run, two_neighbours

pytestmark = pytest.mark.docker
OP = OperationId("op-1")

OWN, ENGINES = "ch-+", "docker0"


@pytest.fixture
def neighbours(iptables: None) -> Iterator[Neighbours]:
    with two_neighbours() as made:
        yield made


@dataclass(frozen=True)
class Published:
    port: int
    rule: str
    """As it is documented for the network that the workspace is on."""


@pytest.fixture(params=[OWN, ENGINES], ids=["own", "engine"])
async def published(
    docker_host: str, test_image: str, installation: str, neighbours: Neighbours, request: pytest.FixtureRequest
) -> AsyncIterator[Published]:
    """A workspace on a node whose NODE_ADDRESS is not loopback."""
    bridge = request.param
    (rule,) = {line for _, line in commands_of("iptables") if f" -o {bridge} " in line}
    if bridge == ENGINES:
        rule = rule.replace(ENGINES, default_bridge(docker_host))
    async with docker_world(
        docker_host, test_image, installation, publish_host=neighbours.host, engines_network=bridge == ENGINES
    ) as world:
        ws = new_workspace()
        await world.runtime.create_volume(ws, OP)
        await world.runtime.start(ws, world.image, OP)
        found = world.container(ws)
        assert found
        (binding,) = found["NetworkSettings"]["Ports"]["8080/tcp"]
        assert binding["HostIp"] == neighbours.host
        yield Published(int(binding["HostPort"]), rule)


async def test_only_the_api_hosts_get_in(neighbours: Neighbours, published: Published) -> None:
    """INPUT is passed by, whatever it says; the rule in DOCKER-USER is not."""
    api, stranger, port = neighbours.first, neighbours.second, published.port
    rule = published.rule.replace("eth0", neighbours.device).replace("10.0.0.5", api).split()
    closed = ["iptables", "-I", "INPUT", "-i", neighbours.device, "-j", "DROP"]
    try:
        assert run(*closed).returncode == 0
        assert neighbours.get_in(api, port)
        assert neighbours.get_in(stranger, port), "so much for INPUT"
        done = run(*rule)
        assert done.returncode == 0, done.stderr
        assert neighbours.get_in(api, port)
        assert not neighbours.get_in(stranger, port)
    finally:
        for one in (closed, rule):
            run(*(re.sub("^-I$", "-D", word) for word in one))
