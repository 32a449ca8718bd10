"""What a workspace reaches, tried from inside it, on whichever network it is."""

import subprocess

import pytest

from domain.model import WorkspaceId
from tests.adapters.docker_world import DockerWorld

needs_iptables = pytest.mark.usefixtures("iptables")
on_both_networks = pytest.mark.parametrize("world", ["own", "engine"], indirect=True)
"""The installation's own network, and the engine's default one (see tests.order)."""


def reaches(world: DockerWorld, ws: WorkspaceId, address: str, port: int | str) -> bool:
    """Whether a TCP connection from inside succeeds."""
    code, _ = world.inside(ws, connects(address, port))
    return code == 0


def connects(address: str, port: int | str) -> str:
    """For a shell inside. It ends with the connection: what is in reach and says nothing would be listened to for ever,
    and a test that hangs has found nothing."""
    return f"nc -w 1 {address} {port} -e true > /dev/null 2>&1"


def can_reach(world: DockerWorld, ws: WorkspaceId, address: str, port: int | str) -> bool:
    """On a busy machine a connection may take longer than a second, once."""
    return any(reaches(world, ws, address, port) for _ in range(10))


def gateway(world: DockerWorld) -> str:
    return str(world.api.inspect_network(world.config.network)["IPAM"]["Config"][0]["Gateway"])


def machine_addresses() -> set[str]:
    done = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=True)
    return {address for address in done.stdout.split() if ":" not in address}
