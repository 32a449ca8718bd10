"""At which port a workspace is reached: never one at which somebody may still look for another's."""

import socket
from contextlib import closing

import pytest

from adapters.docker.ports import FIRST, LAST, Ports
from domain.model import OperationId, WorkspaceId
from tests.adapters.docker_world import DockerWorld

OP = OperationId("op-1")


def test_all_others_come_before_one_comes_again() -> None:
    """Also when it begins at the end of the range."""
    ports = Ports()
    count = LAST - FIRST + 1
    assert len({ports.next(()) for _ in range(count)}) == count


def test_what_is_taken_is_passed_by() -> None:
    ports = Ports()
    first = ports.next(())
    following = [FIRST + (first - FIRST + step) % (LAST - FIRST + 1) for step in (1, 2, 3)]
    assert ports.next(set(following[:2])) == following[2]


@pytest.mark.docker
async def test_a_workspace_is_not_reached_where_another_one_was(world: DockerWorld, ws: WorkspaceId) -> None:
    """As after a restart of the engine: rows still name ports that it takes for free."""
    ports = world.runtime._containers._ports
    taken = {FIRST + (ports._last + step) % (LAST - FIRST + 1) for step in range(1, 50)}
    await world.runtime.start(ws, world.image, OP, taken=taken)
    seen = await world.runtime.observe(ws, probe=True)
    assert seen.endpoint
    assert int(seen.endpoint.rpartition(":")[2]) not in taken


@pytest.mark.docker
async def test_a_port_that_is_in_use_is_no_reason_to_fail(world: DockerWorld, ws: WorkspaceId) -> None:
    """By any program of the machine: the next one is tried."""
    ports = world.runtime._containers._ports
    with closing(socket.socket()) as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        ports._last = other.getsockname()[1] - FIRST - 1
        await world.runtime.start(ws, world.image, OP)
        seen = await world.runtime.observe(ws, probe=True)
        assert seen.endpoint == f"127.0.0.1:{other.getsockname()[1] + 1}"
