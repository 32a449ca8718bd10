"""From every state the desired one is reached: all states that crashes, failures, accidents and users can lead to."""

from collections.abc import Iterator

import pytest

from domain.errors import WorkspaceError
from domain.model import ErrorReason, Phase
from domain.plan import Action
from tests.domain import explore as e
from tests.domain import world as w
from tests.domain.world import World

MAX_STEPS = 4


def events(state: World) -> Iterator[tuple[str, World]]:
    yield from e.users(state)
    yield from e.controller(state)
    yield from e.accidents(state)


def with_archives_lost(state: World) -> Iterator[tuple[str, World]]:
    yield from events(state)
    yield from e.archive_vanishes(state)


def with_zombies(state: World) -> Iterator[tuple[str, World]]:
    yield from events(state)
    yield from e.late(state)


def test_every_desired_state_is_reached() -> None:
    """PROMISE 2: from every reachable state a perfect actuator reaches the desired one in at most 4 operations,
    comes by no phase twice, and stays there. Users ask for every desired state wherever the API lets them."""
    for state, path in e.explore(events).values():
        _converges(state, path)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_every_desired_state_is_reached_where_archives_get_lost() -> None:
    """PROMISE 2: the same where the store loses archives. What is lost for good waits for a person."""
    for state, path in e.explore(with_archives_lost).values():
        _converges(state, path)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_every_desired_state_is_reached_among_zombies() -> None:
    """PROMISE 2: the same, with a superseded attempt that acts late at any moment before."""
    for state, path in e.explore(with_zombies, zombies=1, limit=500_000).values():
        _converges(state, path)


def _converges(state: World, path: tuple[str, ...]) -> None:
    try:
        end = _settle(state)
        for _ in range(2):  # an error that was known, and a loss that shows only now
            if end.row.phase is Phase.ERROR:
                end = _settle(w.recover(end))
        reached = end.row.phase == Phase(end.row.desired_state)
        assert reached or _waits_for_a_person(end), f"ends as {end.row}"
    except AssertionError as error:
        raise AssertionError(f"{error}\nafter {' → '.join(path)}") from error


def _settle(state: World) -> World:
    phases: list[Phase] = []
    for operations in range(MAX_STEPS + 1):
        state, decision = w.reconcile(state)
        if not phases or state.row.phase is not phases[-1]:
            assert state.row.phase not in phases, f"{state.row.phase} comes again after {phases}"
            phases.append(state.row.phase)
        if decision.action not in w.RUN:
            assert decision.action is not Action.LOOK_AGAIN, "everything was observed, yet it looks again"
            return state
        assert operations < MAX_STEPS, f"not there after {MAX_STEPS} operations: {phases}, then {decision}"
        try:
            state = w.perform(state)
        except WorkspaceError as error:
            state = w.fail(state, error.reason)
    raise AssertionError


def _waits_for_a_person(state: World) -> bool:
    """The two states that recover alone does not leave: the archive that held the home is gone, or a container
    runs without its volume."""
    match state.row.error_reason:
        case ErrorReason.DATA_LOST:
            return state.row.archive_key not in state.archives
        case ErrorReason.CONTAINER_WITHOUT_VOLUME:
            return state.container in w.RUNS
    return False
