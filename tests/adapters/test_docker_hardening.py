"""What a workspace can't do, as the engine says it and as it looks from inside (PROMISES 36, 37)."""

import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from adapters.docker.network import BRIDGE, ICC
from domain.model import OperationId, WorkspaceId
from tests.adapters.docker_world import PORT, SMALL, DockerWorld, docker_world, eventually, new_workspace
from tests.adapters.reach import can_reach, gateway, machine_addresses, needs_iptables, on_both_networks, reaches

pytestmark = [pytest.mark.docker, on_both_networks]

OP = OperationId("op-1")


@pytest.fixture
async def ws(world: DockerWorld) -> WorkspaceId:
    return await _running(world)


@pytest.fixture
def host_service() -> Iterator[int]:
    """The port of a service of this machine that listens on every address."""
    with socket.create_server(("0.0.0.0", 0)) as server:

        def serve() -> None:
            with suppress(OSError):  # until the server is shut down
                while True:
                    server.accept()[0].close()

        serving = threading.Thread(target=serve)
        serving.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        serving.join()


async def test_as_the_engine_says(world: DockerWorld, ws: WorkspaceId) -> None:
    """Capabilities, privileges, limits, mounts, ports and logs are what the design says."""
    found = world.container(ws)
    assert found
    host = found["HostConfig"]
    expected: dict[str, Any] = {
        "Privileged": False,
        "CapAdd": None,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "Memory": SMALL.memory,
        "MemorySwap": SMALL.memory,
        "NanoCpus": int(SMALL.cpus * 1e9),
        "PidsLimit": SMALL.pids,
        "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
        "LogConfig": {"Type": "json-file", "Config": {"max-size": "10m", "max-file": "1"}},
        "NetworkMode": world.config.network,
        "PidMode": "",
        "UsernsMode": "",
        "Devices": None,
        "Binds": None,
        "Init": True,
    }
    assert {key: host[key] for key in expected} == expected
    assert [(m["Type"], m["Name"], m["Destination"]) for m in found["Mounts"]] == [
        ("volume", f"ws-{ws}-home", "/home/coder")
    ]
    assert [b["HostIp"] for b in found["NetworkSettings"]["Ports"][f"{PORT}/tcp"]] == ["127.0.0.1"]
    assert found["Config"]["Labels"] == {
        "codehub.installation": world.config.installation,
        "codehub.workspace": ws,
        "codehub.role": "workspace",
        "codehub.operation": OP,
    }
    network = world.api.inspect_network(world.config.network)
    assert network["Options"][ICC] == "false"
    assert network["EnableIPv6"] is False


async def test_no_privileges_inside(world: DockerWorld, ws: WorkspaceId) -> None:
    """No capability, none to be had, no way to the engine, not root."""
    _, status = world.inside(ws, "cat /proc/1/status /proc/self/status")
    facts = [line.split(":\t") for line in status.splitlines()]
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert [value for key, value in facts if key == name] == ["0" * 16] * 2, name
    assert [value for key, value in facts if key == "NoNewPrivs"] == ["1", "1"]
    assert world.inside(ws, "id -u")[1] == "1000\n"
    assert world.inside(ws, "ls /var/run/docker.sock /run/docker.sock")[0] != 0


async def test_an_init_reaps(world: DockerWorld, ws: WorkspaceId) -> None:
    """Process 1 is an init: what is orphaned in the workspace does not stay as a zombie."""
    world.inside(ws, "(sleep 0.1 &) ; sleep 0.5")
    # Not there to stay: whoever looks may come just before it is reaped, or while somebody else ends.
    look = "grep -ls '^State:.Z' /proc/[0-9]*/status; cat /proc/1/comm"
    await eventually(lambda: world.inside(ws, look)[1] == "docker-init\n", seconds=30)


async def test_processes_are_limited(world: DockerWorld, ws: WorkspaceId) -> None:
    """A fork bomb ends at the limit, inside."""
    code, said = world.inside(ws, "for i in $(seq 200); do sleep 5 & done; echo survived")
    assert code != 0 or "can't fork" in said
    assert "survived" not in said


async def test_other_workspaces_are_out_of_reach(world: DockerWorld, ws: WorkspaceId) -> None:
    """Neither by a neighbour's address nor by its published port, of any bridge."""
    other = await _running(world)
    neighbour = world.api.inspect_container(f"ws-{other}")["NetworkSettings"]
    address = neighbour["Networks"][world.config.network]["IPAddress"]
    published = neighbour["Ports"][f"{PORT}/tcp"][0]["HostPort"]
    assert can_reach(world, ws, "127.0.0.1", PORT), "it can reach nothing at all: this test says nothing"
    assert not reaches(world, ws, address, PORT)
    assert not reaches(world, ws, gateway(world), published)
    assert not reaches(world, ws, f"ws-{other}", PORT)


async def test_other_networks_are_out_of_reach(
    world: DockerWorld, ws: WorkspaceId, docker_host: str, test_image: str, installation: str
) -> None:
    """Neither another installation's workspaces nor the engine's other containers."""
    plain = world.api.create_container(world.image)
    world.api.start(plain["Id"])
    try:
        networks = world.api.inspect_container(plain["Id"])["NetworkSettings"]["Networks"]
        assert not reaches(world, ws, networks["bridge"]["IPAddress"], PORT)
    finally:
        world.api.remove_container(plain["Id"], force=True)
    async with docker_world(docker_host, test_image, installation) as elsewhere:
        other = await _running(elsewhere)
        networks = elsewhere.api.inspect_container(f"ws-{other}")["NetworkSettings"]["Networks"]
        assert not reaches(world, ws, networks[elsewhere.config.network]["IPAddress"], PORT)


@needs_iptables
async def test_the_machines_own_ports_are_out_of_reach(world: DockerWorld, ws: WorkspaceId, host_service: int) -> None:
    """A service on 0.0.0.0 is not reached by any address of the machine; without our rule it would be."""
    ours = gateway(world)
    for address in {ours, *machine_addresses()}:
        assert not reaches(world, ws, address, host_service), address
    firewall = world.runtime._network._firewall
    firewall.remove()
    assert can_reach(world, ws, ours, host_service), "it is out of reach anyway: this test says nothing"
    firewall.ensure()
    assert not reaches(world, ws, ours, host_service)


@needs_iptables
async def test_cloud_metadata_is_out_of_reach(world: DockerWorld, ws: WorkspaceId) -> None:
    """What is sent to the metadata address is dropped by our rule; a name server there could be asked."""
    assert not reaches(world, ws, "169.254.169.254", 80)
    rules = _rules(world)
    for protocol in ("tcp", "udp"):
        blocked = [line for line in rules if "-d 169.254.0.0/16" in line and f"-p {protocol}" in line]
        assert len(blocked) == 1, rules
        assert "! --dport 53" in blocked[0]


@needs_iptables
async def test_other_bridges_are_closed_by_our_own_rules(world: DockerWorld, ws: WorkspaceId) -> None:
    """A second engine that starts on the machine takes Docker's rules between bridges away, not ours."""
    rules = _rules(world)
    for bridges in ("docker+", "br-+", "ch-+"):
        assert any(f"-o {bridges} " in line and line.endswith("-j DROP") for line in rules), rules


@needs_iptables
async def test_rules_are_put_in_once_and_go_with_the_installation(world: DockerWorld, ws: WorkspaceId) -> None:
    """Workers that come later add nothing; the end of the installation takes them out."""
    rules = _rules(world)
    assert len(rules) == len(set(rules)) >= 8
    bridge = world.api.inspect_network(world.config.network)["Options"][BRIDGE]
    assert all(f"-i {bridge} " in rule for rule in rules)
    later = world.another()
    await later._network.ensure()
    await later.close()
    assert _rules(world) == rules
    await world.runtime.stop(ws)
    await world.runtime.remove_network()
    assert _rules(world) == []


async def _running(world: DockerWorld) -> WorkspaceId:
    ws = new_workspace()
    await world.runtime.create_volume(ws, OP)
    await world.runtime.start(ws, world.image, OP)
    return ws


def _rules(world: DockerWorld) -> list[str]:
    """Ours; Docker has some of its own for the same bridge."""
    done = subprocess.run(["iptables", "-w", "-S"], capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if f'"codehub:{world.config.installation}"' in line]
