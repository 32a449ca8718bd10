"""Who reloads a packet filter opens it under workspaces that run. The node's next sweep closes it (PROMISE 37)."""

import contextlib
import shlex
import shutil
import socket
import sys
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest

from coordinator.observer import Observer
from domain.model import OperationId, WorkspaceId
from tests.adapters.docker_world import DockerWorld, new_workspace
from tests.adapters.reach import gateway, needs_iptables, reaches
from tests.coordinator.test_observer import NobodyToWake, Noting
from tests.neighbours import run, serving

OP = OperationId("op-1")
PORT = 7000
NODE, MACHINE = "10.98.0.2", "10.97.0.2"
"""Another node, and a virtual machine on a bridge that Docker has not made."""
ENSURE = f"""
from adapters.docker.firewall import Firewall
from adapters.docker.rules import Closed
print(Firewall("ch-test", "test", Closed(hosts=({NODE!r},))).ensure())
"""
TRY = """
import socket, sys
from concurrent.futures import ThreadPoolExecutor
def reached(address):
    try:
        socket.create_connection((address, int(sys.argv[1])), timeout=0.7)
    except OSError:
        return ""
    return address
print(*ThreadPoolExecutor().map(reached, sys.argv[2:]))
"""


class Quiet(Noting):
    async def deleted(self, among: Sequence[WorkspaceId]) -> list[WorkspaceId]:
        return []


@needs_iptables
@pytest.mark.docker
async def test_the_next_sweep_puts_the_rules_back(world: DockerWorld) -> None:
    """No start is needed. What a workspace connected to meanwhile hears no more of it."""
    ws = new_workspace()
    await world.runtime.create_volume(ws, OP)
    await world.runtime.start(ws, world.image, OP)
    host = gateway(world)
    with socket.create_server(("0.0.0.0", 0)) as server:
        server.settimeout(30)
        port = server.getsockname()[1]
        assert not reaches(world, ws, host, port)
        for rule in _rules(world):
            assert run("iptables", "-w", "-D", *rule[1:]).returncode == 0
        held = "mkfifo /tmp/words; sleep 60 > /tmp/words & nc $1 $2 < /tmp/words &"
        world.inside(ws, f"set -- {host} {port}; ({held}) > /dev/null 2>&1; echo one > /tmp/words")
        opened, _ = server.accept()
        with opened:
            opened.settimeout(30)
            assert opened.recv(10) == b"one\n"
            sweeping = Observer("here", cast("Any", Quiet()), world.runtime, cast("Any", NobodyToWake()))
            await sweeping.sweep()
            assert not reaches(world, ws, host, port)
            world.inside(ws, "echo two > /tmp/words")
            opened.settimeout(1)
            with pytest.raises(TimeoutError):
                opened.recv(10)


def _rules(world: DockerWorld) -> list[list[str]]:
    lines = run("iptables", "-w", "-S").stdout.splitlines()
    return [shlex.split(line) for line in lines if f'"codehub:{world.config.installation}"' in line]


class Machine:
    """One with a workspace on it, another node beside it, and a virtual machine; each is a network namespace."""

    def __init__(self) -> None:
        tag = uuid.uuid4().hex[:8]
        self.itself, self.workspace, self.node, self.virtual = (f"codehub-test-{tag}-{n}" for n in range(4))

    def build(self) -> None:
        for name in (self.itself, self.workspace, self.node, self.virtual):
            _done("ip", "netns", "add", name)
        for bridge in ("ch-test", "virbr0"):
            self("ip", "link", "add", bridge, "type", "bridge")
        for device, bridge, other, network in (
            ("in0", "ch-test", self.workspace, "10.99.0"),
            ("in1", "", self.node, "10.98.0"),
            ("in2", "virbr0", self.virtual, "10.97.0"),
        ):
            self("ip", "link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", other)
            if bridge:
                self("ip", "link", "set", device, "master", bridge)
            self("ip", "address", "add", f"{network}.1/24", "dev", bridge or device)
            for one in {device, bridge or device}:
                self("ip", "link", "set", one, "up")
            _done("ip", "-n", other, "address", "add", f"{network}.2/24", "dev", "eth0")
            _done("ip", "-n", other, "link", "set", "eth0", "up")
            _done("ip", "-n", other, "route", "add", "default", "via", f"{network}.1")
        self("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")

    def __call__(self, *command: str) -> str:
        return _done("ip", "netns", "exec", self.itself, *command)

    def filter(self, *rules: str) -> None:
        for rule in rules:
            self("iptables", "-w", *rule.split())

    def ensure(self) -> None:
        assert self(sys.executable, "-c", ENSURE).splitlines()[-1] == "None"

    def reached(self) -> set[str]:
        """By the workspace."""
        tries = (sys.executable, "-c", TRY, str(PORT), "10.99.0.1", NODE, MACHINE)
        return set(_done("ip", "netns", "exec", self.workspace, *tries).split())

    def chains(self) -> set[str]:
        """With rules of ours."""
        return {line.split()[1] for line in self("iptables", "-S").splitlines() if '"codehub:test"' in line}


@pytest.fixture
def machine() -> Iterator[Machine]:
    if shutil.which("ip") is None or shutil.which("iptables") is None:
        pytest.skip("needs ip and iptables")
    made = Machine()
    try:
        try:
            made.build()
        except AssertionError as error:
            pytest.skip(f"no network namespaces here: {error}")
        with contextlib.ExitStack() as serve:
            for name in (made.itself, made.node, made.virtual):
                serve.enter_context(serving(name, PORT))
            yield made
    finally:
        for name in (made.itself, made.workspace, made.node, made.virtual):
            run("ip", "netns", "del", name)


def test_all_chains_flushed(machine: Machine) -> None:
    """Docker's own chain is cut off then: the rules are where packets pass, until Docker leads there again."""
    all_of_it = {"10.99.0.1", NODE, MACHINE}
    machine.filter("-N DOCKER-USER", "-A DOCKER-USER -j RETURN", "-A FORWARD -j DOCKER-USER")
    assert machine.reached() == all_of_it
    machine.ensure()
    assert machine.reached() == set()
    assert machine.chains() == {"INPUT", "DOCKER-USER"}
    machine.filter("-F")
    assert machine.reached() == all_of_it
    machine.ensure()
    assert machine.reached() == set()
    machine.filter("-I FORWARD -j DOCKER-USER")
    machine.ensure()
    assert machine.reached() == set()
    assert machine.chains() == {"INPUT", "DOCKER-USER"}


def _done(*command: str) -> str:
    done = run(*command)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout
