"""At which port a workspace is reached: never one at which somebody may still look for another's."""

import socket
from collections.abc import Collection
from contextlib import closing

import pytest

from adapters.docker.ports import FIRST, LAST, Ports
from adapters.runtime import none_taken
from domain.model import OperationId, WorkspaceId
from tests.adapters.docker_world import DockerWorld

OP = OperationId("op-1")


COUNT = LAST - FIRST + 1


class Taken:
    """By rows."""

    def __init__(self, ports: Collection[int]) -> None:
        self.ports = set(ports)
        self.asked = 0

    async def __call__(self, among: Collection[int]) -> Collection[int]:
        self.asked += 1
        return self.ports.intersection(among)


async def test_all_others_come_before_one_comes_again() -> None:
    """Also when it begins at the end of the range."""
    ports = Ports()
    assert len({await ports.next(none_taken) for _ in range(COUNT)}) == COUNT


@pytest.mark.parametrize(("taken", "questions"), [(0, 1), (2, 2), (500, 4), (COUNT - 1, 7)])
async def test_what_is_taken_is_passed_by(taken: int, questions: int) -> None:
    """One question, as a rule; a few where an earlier process has given out all that follow."""
    ports = Ports()
    first = await ports.next(none_taken)
    following = [FIRST + (first - FIRST + step) % COUNT for step in range(1, COUNT)] + [first]
    rows = Taken(following[:taken])
    assert await ports.next(rows) == following[taken]
    assert rows.asked <= questions


async def test_where_all_are_taken_one_is_used() -> None:
    """Rows that name all of them can't all be right: whether it is free shows when it is used."""
    rows = Taken(range(FIRST, LAST + 1))
    assert FIRST <= await Ports().next(rows) <= LAST
    assert rows.asked <= 7


@pytest.mark.docker
async def test_a_workspace_is_not_reached_where_another_one_was(world: DockerWorld, ws: WorkspaceId) -> None:
    """As after a restart of the engine: rows still name ports that it takes for free."""
    ports = world.runtime._containers._ports
    taken = {FIRST + (ports._last + step) % COUNT for step in range(1, 50)}
    await world.runtime.start(ws, world.image, OP, taken=Taken(taken))
    seen = await world.runtime.observe(ws, probe=True)
    assert seen.endpoint
    assert int(seen.endpoint.rpartition(":")[2]) not in taken


@pytest.mark.docker
async def test_a_port_that_is_in_use_is_no_reason_to_fail(world: DockerWorld, ws: WorkspaceId) -> None:
    """By any program of the machine: those that follow are tried, and the next may be in use, too."""
    ports = world.runtime._containers._ports
    with closing(socket.socket()) as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        used = other.getsockname()[1]
        ports._last = used - FIRST - 1
        await world.runtime.start(ws, world.image, OP)
        seen = await world.runtime.observe(ws, probe=True)
        assert seen.endpoint
        assert 0 < (int(seen.endpoint.rpartition(":")[2]) - used) % COUNT < 20
