"""Who may reach a node: the rule of docs/operations.md, on a real network with a real engine."""

import re
import shutil
import subprocess
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest

from domain.model import OperationId
from tests.adapters.docker_world import default_bridge, docker_world, new_workspace
from tests.docs.test_commands import commands_of

pytestmark = pytest.mark.docker
OP = OperationId("op-1")

OWN, ENGINES = "ch-+", "docker0"
HOST, API, STRANGER = "198.18.7.1", "198.18.7.5", "198.18.7.66"


@dataclass(frozen=True)
class Neighbours:
    """Two other machines, in a network namespace behind a device of this one."""

    namespace: str
    device: str

    def get_in(self, source: str, port: int) -> bool:
        """Whether a new connection from there is answered."""
        answer = _run(
            *("ip", "netns", "exec", self.namespace, "curl", "-s", "-o", "/dev/null", "--max-time", "3"),
            *("--interface", source, f"http://{HOST}:{port}/"),
        )
        return answer.returncode == 0


@pytest.fixture
def neighbours(iptables: None) -> Iterator[Neighbours]:
    if shutil.which("ip") is None or shutil.which("curl") is None:
        pytest.skip("needs ip and curl")
    tag = uuid.uuid4().hex[:8]
    made = Neighbours(f"codehub-test-{tag}", f"cht{tag}")
    inside = ("ip", "-n", made.namespace)
    try:
        for command in (
            ("ip", "netns", "add", made.namespace),
            ("ip", "link", "add", made.device, "type", "veth", "peer", "name", "eth0", "netns", made.namespace),
            ("ip", "address", "add", f"{HOST}/24", "dev", made.device),
            ("ip", "link", "set", made.device, "up"),
            (*inside, "address", "add", f"{API}/24", "dev", "eth0"),
            (*inside, "address", "add", f"{STRANGER}/24", "dev", "eth0"),
            (*inside, "link", "set", "eth0", "up"),
        ):
            done = _run(*command)
            if done.returncode:
                pytest.skip(f"no network namespaces here: {done.stderr}")
        yield made
    finally:
        _run("ip", "link", "del", made.device)
        _run("ip", "netns", "del", made.namespace)


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
        docker_host, test_image, installation, publish_host=HOST, engines_network=bridge == ENGINES
    ) as world:
        ws = new_workspace()
        await world.runtime.create_volume(ws, OP)
        await world.runtime.start(ws, world.image, OP)
        found = world.container(ws)
        assert found
        (binding,) = found["NetworkSettings"]["Ports"]["8080/tcp"]
        assert binding["HostIp"] == HOST
        yield Published(int(binding["HostPort"]), rule)


async def test_only_the_api_hosts_get_in(neighbours: Neighbours, published: Published) -> None:
    """INPUT is passed by, whatever it says; the rule in DOCKER-USER is not."""
    rule, port = published.rule.replace("eth0", neighbours.device).replace("10.0.0.5", API).split(), published.port
    closed = ["iptables", "-I", "INPUT", "-i", neighbours.device, "-j", "DROP"]
    try:
        assert _run(*closed).returncode == 0
        assert neighbours.get_in(API, port)
        assert neighbours.get_in(STRANGER, port), "so much for INPUT"
        done = _run(*rule)
        assert done.returncode == 0, done.stderr
        assert neighbours.get_in(API, port)
        assert not neighbours.get_in(STRANGER, port)
    finally:
        for one in (closed, rule):
            _run(*(re.sub("^-I$", "-D", word) for word in one))


def _run(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
