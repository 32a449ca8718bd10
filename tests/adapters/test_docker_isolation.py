"""PROMISE 37: what a workspace must not reach, tried from inside, with the real services on this machine."""

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from domain.model import OperationId, WorkspaceId
from tests.adapters.docker_world import PORT, DockerWorld, new_workspace
from tests.adapters.reach import can_reach, connects, gateway, machine_addresses, needs_iptables, on_both_networks
from tests.services import Services

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600), on_both_networks]


@pytest.fixture
async def ws(world: DockerWorld) -> WorkspaceId:
    workspace, operation = new_workspace(), OperationId("op-1")
    await world.runtime.create_volume(workspace, operation)
    await world.runtime.start(workspace, world.image, operation)
    return workspace


@pytest.fixture
def ports(services: Services) -> dict[str, int]:
    urls = {
        "PostgreSQL": services.need("postgres")["url"],
        "Redis": services.need("valkey")["url"],
        "S3": services.need("seaweed")["endpoint"],
        "Temporal": f"//{services.need('temporal')['address']}",
        "the Temporal UI": services.need("temporal")["ui_url"],
    }
    return {name: urlsplit(url).port or 0 for name, url in urls.items()}


@pytest.fixture
def engine_port() -> Iterator[int]:
    """As a Docker engine that somebody opened to the network."""
    with socket.create_server(("0.0.0.0", 0), backlog=50) as server:
        yield server.getsockname()[1]


@needs_iptables
async def test_no_service_is_in_reach(
    world: DockerWorld, ws: WorkspaceId, ports: dict[str, int], engine_port: int
) -> None:
    """PostgreSQL, Redis, S3, Temporal and the Docker API, at any address that the machine has."""
    for name, port in ports.items():
        with socket.create_connection(("127.0.0.1", port), timeout=10):
            assert not _reached(world, ws, "127.0.0.1", [port]), name
    assert can_reach(world, ws, "127.0.0.1", PORT), "it can reach nothing at all: this test says nothing"
    ports["the Docker API"] = engine_port
    for address in {gateway(world), *machine_addresses()}:
        reached = _reached(world, ws, address, list(ports.values()))
        if address in machine_addresses():  # else it went away with another test's engine, and somebody else answered
            assert not [name for name, port in ports.items() if port in reached], address


async def test_the_engines_socket_is_not_inside(world: DockerWorld, ws: WorkspaceId) -> None:
    """Neither where it usually is nor anywhere else."""
    code, found = world.inside(ws, "find / -xdev -type s 2>/dev/null; grep -c docker.sock /proc/mounts")
    assert (code, found.strip()) == (1, "0")


def _reached(world: DockerWorld, ws: WorkspaceId, address: str, ports: list[int]) -> set[int]:
    """All at once: what is dropped answers with silence, and takes a second each."""
    tries = [f"({connects(address, port)} && echo {port}) &" for port in ports]
    _, said = world.inside(ws, f"{' '.join(tries)} wait")
    return {int(word) for word in said.split()}
