"""SPEC 13, line by line, and every combination of a workspace's state."""

from dataclasses import replace
from itertools import product

import pytest

from domain.model import DesiredState, ErrorReason, Operation, Phase, UserId, WorkspaceId
from starter.proxy.decide import (
    CloseTryAgain,
    Decision,
    Follow,
    Kind,
    LogIn,
    NotFound,
    Page,
    PageKind,
    Pass,
    Refuse,
    Unavailable,
    View,
    Wake,
    decide,
)

ME, OTHER = UserId("me"), UserId("other")
AT = "127.0.0.1:1"


def view(
    phase: Phase,
    desired: DesiredState | None = None,
    operation: Operation = Operation.NONE,
    owner: UserId = ME,
    endpoint: str | None = AT,
) -> View:
    reason = ErrorReason.TIMEOUT if phase is Phase.ERROR else None
    at_rest = {Phase.DELETING: DesiredState.DELETED, Phase.DELETED: DesiredState.DELETED, Phase.PENDING: None}
    wanted = (
        desired
        or at_rest.get(phase)
        or (DesiredState(phase) if phase.value in DesiredState.__members__ else DesiredState.ARCHIVED)
    )
    return View(WorkspaceId("w"), owner, "name", phase, operation, wanted, endpoint, reason)


TABLE: list[tuple[View, Decision, Decision, Decision]] = [
    # workspace, navigation, other, WebSocket
    (view(Phase.RUNNING), Pass(AT), Pass(AT), Pass(AT)),
    (view(Phase.RUNNING, DesiredState.STANDBY), Pass(AT), Pass(AT), Pass(AT)),
    (view(Phase.STANDBY), Wake(), Unavailable(), CloseTryAgain()),
    (view(Phase.STANDBY, DesiredState.RUNNING), Wake(), Unavailable(), CloseTryAgain()),
    (view(Phase.STANDBY, DesiredState.ARCHIVED), Wake(), Unavailable(), CloseTryAgain()),
    (
        view(Phase.ARCHIVED),
        Page(PageKind.RESTORE_NEEDED),
        Page(PageKind.RESTORE_NEEDED),
        CloseTryAgain(),
    ),
    (view(Phase.PENDING), Page(PageKind.START_NEEDED), Page(PageKind.START_NEEDED), CloseTryAgain()),
    (view(Phase.ERROR), Page(PageKind.ERROR), Page(PageKind.ERROR), CloseTryAgain()),
    (replace(view(Phase.ERROR), error_reason=None), Follow(), Unavailable(), CloseTryAgain()),
    (view(Phase.DELETED), NotFound(), NotFound(), Refuse(404)),
    # asked for, and about to begin
    (view(Phase.ARCHIVED, DesiredState.RUNNING), Follow(), Unavailable(), CloseTryAgain()),
    (view(Phase.PENDING, DesiredState.RUNNING), Follow(), Unavailable(), CloseTryAgain()),
    (view(Phase.STANDBY, DesiredState.DELETED), Follow(), Unavailable(), CloseTryAgain()),
    (view(Phase.DELETING), Follow(), Unavailable(), CloseTryAgain()),
    # observed to run, but nowhere to be reached
    (
        view(Phase.RUNNING, endpoint=None),
        Page(PageKind.UNREACHABLE),
        Page(PageKind.UNREACHABLE),
        CloseTryAgain(),
    ),
    *(
        (view(phase, operation=operation), Follow(), Unavailable(), CloseTryAgain())
        for phase, operation in [
            (Phase.PENDING, Operation.PROVISIONING),
            (Phase.PENDING, Operation.CREATE_EMPTY_ARCHIVE),
            (Phase.ARCHIVED, Operation.RESTORING),
            (Phase.STANDBY, Operation.STARTING),
            (Phase.STANDBY, Operation.ARCHIVING),
            (Phase.RUNNING, Operation.STOPPING),
            (Phase.RUNNING, Operation.DELETING),
            (Phase.DELETING, Operation.DELETING),
        ]
    ),
]


@pytest.mark.parametrize(("seen", "navigation", "other", "websocket"), TABLE)
def test_the_table(seen: View, navigation: Decision, other: Decision, websocket: Decision) -> None:
    """Each line of SPEC 13."""
    assert decide(ME, seen, Kind.NAVIGATION) == navigation
    assert decide(ME, seen, Kind.OTHER) == other
    assert decide(ME, seen, Kind.WEBSOCKET) == websocket


EVERY = [
    View(WorkspaceId("w"), ME, "name", phase, operation, desired, endpoint, None)
    for phase, operation, desired, endpoint in product(Phase, Operation, DesiredState, (AT, None))
]


@pytest.mark.parametrize("kind", Kind)
def test_strangers_learn_nothing(kind: Kind) -> None:
    """Whoever is not logged in, or not the owner, gets the same whatever state the workspace is in."""
    assert len({decide(None, seen, kind) for seen in [None, *EVERY]}) == 1
    assert len({decide(OTHER, seen, kind) for seen in [None, *EVERY]}) == 1
    assert isinstance(decide(None, None, kind), LogIn | Refuse)


def test_only_a_navigation_wakes_and_only_from_standby() -> None:
    """Nothing else ever leads to a change of desired_state."""
    for seen, kind in product(EVERY, Kind):
        if decide(ME, seen, kind) == Wake():
            assert (kind, seen.phase, seen.operation) == (Kind.NAVIGATION, Phase.STANDBY, Operation.NONE)
            assert seen.desired_state is not DesiredState.DELETED


def test_only_a_running_workspace_at_rest_is_reached() -> None:
    """No connection is made to anything else."""
    for seen, kind in product(EVERY, Kind):
        reached = seen.phase is Phase.RUNNING and seen.operation is Operation.NONE and seen.endpoint is not None
        assert isinstance(decide(ME, seen, kind), Pass) is reached


def test_a_websocket_gets_no_page() -> None:
    """It passes, is closed with 1013, or is refused before the upgrade."""
    for user, seen in product((None, ME, OTHER), [None, *EVERY]):
        assert isinstance(decide(user, seen, Kind.WEBSOCKET), Pass | CloseTryAgain | Refuse)
