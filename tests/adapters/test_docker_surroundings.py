"""PROMISE 37 on several machines: what a workspace does not reach beyond its own node, and what it keeps reaching."""

import dataclasses
from collections.abc import AsyncIterator, Collection, Iterator

import pytest

from adapters.docker import DockerRuntime
from adapters.docker.surroundings import Surroundings, is_inside
from domain.errors import Unreachable
from domain.model import OperationId, WorkspaceId
from tests.adapters.docker_world import PORT, DockerWorld, new_workspace
from tests.adapters.reach import can_reach, needs_iptables, on_both_networks, reaches
from tests.neighbours import Neighbours, serving, two_neighbours

pytestmark = pytest.mark.docker

OP = OperationId("op-1")
OTHER, SERVICE, DNS = 32768, 5432, 53


class Table:
    """Of nodes, as PostgreSQL tells it."""

    def __init__(self, *addresses: str) -> None:
        self.addresses: Collection[str] | None = addresses

    async def __call__(self) -> Collection[str]:
        if self.addresses is None:
            raise Unreachable("PostgreSQL is away")
        return self.addresses


@pytest.fixture
def nodes() -> Table:
    return Table()


@pytest.fixture
def neighbours(iptables: None) -> Iterator[Neighbours]:
    with two_neighbours() as made, serving(made.namespace, OTHER, SERVICE, DNS):
        yield made


@pytest.fixture
async def worker(world: DockerWorld, neighbours: Neighbours, nodes: Table) -> AsyncIterator[DockerRuntime]:
    """One that uses a service of the first neighbour, on a node with an address of its own."""
    config = dataclasses.replace(
        world.config, publish_host=neighbours.host, services=((neighbours.first, SERVICE), ("127.0.0.1", SERVICE))
    )
    made = DockerRuntime(config, nodes)
    yield made
    await made.close()


@pytest.fixture
async def ws(world: DockerWorld, worker: DockerRuntime) -> WorkspaceId:
    made = new_workspace()
    await worker.create_volume(made, OP)
    await worker.start(made, world.image, OP)
    return made


@needs_iptables
@on_both_networks
async def test_other_nodes_and_services_are_out_of_reach(
    world: DockerWorld, worker: DockerRuntime, ws: WorkspaceId, neighbours: Neighbours, nodes: Table
) -> None:
    """The service from the start, another node as soon as it is registered and until it is removed; by no more than
    that. The proxy gets in from there all the same."""
    service, node = neighbours.first, neighbours.second
    assert can_reach(world, ws, service, OTHER), "it can reach nothing at all: this test says nothing"
    assert not reaches(world, ws, service, SERVICE)
    for port in (OTHER, SERVICE):
        assert can_reach(world, ws, node, port)
    nodes.addresses = [node, neighbours.host, "127.0.0.1"]
    await worker.isolate()
    for port in (OTHER, SERVICE):
        assert not reaches(world, ws, node, port), port
    assert can_reach(world, ws, node, DNS), "name servers are excepted"
    assert can_reach(world, ws, service, OTHER)
    found = world.container(ws)
    assert found
    published = int(found["NetworkSettings"]["Ports"][f"{PORT}/tcp"][0]["HostPort"])
    assert neighbours.get_in(node, published)
    nodes.addresses = None
    await worker.isolate()
    assert not reaches(world, ws, node, OTHER), "nobody says that it was removed"
    nodes.addresses = []
    await worker.isolate()
    assert can_reach(world, ws, node, OTHER)
    assert not reaches(world, ws, service, SERVICE)


@needs_iptables
async def test_networks_that_are_named_are_out_of_reach(
    world: DockerWorld, worker: DockerRuntime, ws: WorkspaceId, neighbours: Neighbours
) -> None:
    """WORKSPACE_BLOCKED_NETWORKS: all of it, but for name servers, and for answers to whoever connects from there."""
    assert can_reach(world, ws, neighbours.second, OTHER), "it can reach nothing at all: this test says nothing"
    config = dataclasses.replace(worker.config, blocked_networks=(f"{neighbours.network}.0/24", "fd00::/8"))
    told = DockerRuntime(config)
    await told.isolate()
    await told.close()
    for address in (neighbours.first, neighbours.second):
        assert not reaches(world, ws, address, OTHER), address
    assert can_reach(world, ws, neighbours.second, DNS)
    found = world.container(ws)
    assert found
    published = int(found["NetworkSettings"]["Ports"][f"{PORT}/tcp"][0]["HostPort"])
    assert neighbours.get_in(neighbours.second, published)


async def test_names_are_resolved_and_remembered(world: DockerWorld) -> None:
    """A service by its name; one that can't be resolved opens nothing again, and keeps no start waiting for long."""
    config = dataclasses.replace(world.config, services=(("localhost", 1), ("nowhere.invalid", 2), ("10.0.0.5", 3)))
    around = Surroundings(config, Table("10.0.0.12", "fd00::1", "0.0.0.0"))
    found = await around.look()
    assert (found.hosts, found.services, found.is_all) == (("10.0.0.12",), (("10.0.0.5", 3),), False)
    around._known["nowhere.invalid"] = {"10.0.0.6", "93.184.216.34"}
    assert (await around.look()).services == (("10.0.0.5", 3), ("10.0.0.6", 2))


@pytest.mark.parametrize("address", ["10.0.0.5", "172.16.0.1", "192.168.1.1", "100.64.0.1", "198.18.0.1"])
def test_what_is_inside_is_closed(address: str) -> None:
    assert is_inside(address)


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "93.184.216.34", "8.8.8.8"])
def test_what_everybody_reaches_is_not(address: str) -> None:
    assert not is_inside(address)
