"""An observation that failed is unknown, and unknown is no reason to touch anything (contract 2)."""

from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from domain.apply import apply
from domain.judge import judge
from domain.model import (
    Condition,
    ConditionName,
    DesiredState,
    ErrorReason,
    HomeContext,
    Operation,
    OperationId,
    Phase,
    Workspace,
)
from domain.observation import ContainerState, Observation, Presence, Resources
from domain.plan import Action, decide
from tests.domain.rows import DELETED_AT, EARLIER, NOW, OLD_KEY, OLD_OP, OP, OWN_KEY, row, violated_checks

DESTRUCTIVE = frozenset({Operation.STOPPING, Operation.ARCHIVING, Operation.DELETING, Operation.RESTORING})
ERRORS = st.sampled_from([None, *ErrorReason])


def count(examples: int) -> settings:
    return settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=[HealthCheck.filter_too_much]
    )


STATUSES = st.sampled_from(list(product((None, False, True), repeat=3)))
HOMES = [
    (key, archive_op_id, HomeContext(restoring, marker))
    for key, archive_op_id in product((None, OWN_KEY, OLD_KEY), (None, OP, OLD_OP))
    for restoring, marker in product((None, OWN_KEY, OLD_KEY), repeat=2)
]
ANY_HOME = st.sampled_from(HOMES)
ARCHIVED_HOME = st.sampled_from([home for home in HOMES if home[0] is not None])
WISHES = st.sampled_from(list(product(Operation, DesiredState)))


@st.composite
def workspaces(draw: st.DrawFn, *, archived: bool = False) -> Workspace:
    """Any row that the CHECK constraints allow, reachable or not."""
    operation, desired = draw(WISHES)
    key, archive_op_id, home_ctx = draw(ARCHIVED_HOME if archived else ANY_HOME)
    deleted = desired is DesiredState.DELETED
    error = draw(ERRORS) if operation is Operation.NONE else None
    columns: dict[str, Any] = {
        "phase": Phase.ERROR if error else Phase.DELETING if deleted else Phase.STANDBY,
        "desired_state": desired,
        "deleted_at": DELETED_AT if deleted else None,
        "error_reason": error,
        "archive_key": key,
        "archive_op_id": archive_op_id,
        "home_ctx": home_ctx,
        "conditions": _conditions(draw(STATUSES), draw(st.sampled_from(["", OWN_KEY, OLD_KEY]))),
    }
    if operation is not Operation.NONE:
        columns["op_started_at"] = NOW - timedelta(seconds=draw(st.integers(0, 4000)))
    ws = row(operation, **columns)
    assume(not violated_checks(ws))
    return ws


def _conditions(statuses: tuple[bool | None, ...], archive: str) -> dict[ConditionName, Condition]:
    names = (ConditionName.VOLUME_READY, ConditionName.CONTAINER_READY, ConditionName.ARCHIVE_READY)
    return {
        name: Condition(status, "Formerly", archive if name is ConditionName.ARCHIVE_READY else "", EARLIER)
        for name, status in zip(names, statuses, strict=True)
        if status is not None
    }


containers = st.sampled_from(ContainerState)
presences = st.sampled_from(Presence)
blind = st.one_of(
    st.builds(Resources, st.just(ContainerState.UNKNOWN), presences),
    st.builds(Resources, containers, st.just(Presence.UNKNOWN)),
)
blind_to_docker = st.builds(Observation, blind, presences)
blind_to_the_store = st.builds(Observation, st.builds(Resources, containers, presences), st.just(Presence.UNKNOWN))


def touches_nothing(ws: Workspace, seen: Observation) -> None:
    judgement = judge(ws, seen, NOW)
    decision = decide(ws, judgement, seen, NOW)
    assert decision.action not in {Action.CLAIM, Action.RESUME}
    assert decision.completed is Operation.NONE
    assert decision.action is not Action.GONE
    after = apply(ws, judgement, decision, seen, NOW, OperationId("op-new"), "n1")
    assert after.home_ctx == ws.home_ctx
    assert after.archive_op_id == ws.archive_op_id
    if seen.resources.volume is Presence.UNKNOWN:
        lost = judgement.error_reason is ErrorReason.DATA_LOST
        assert not lost or ws.error_reason is ErrorReason.DATA_LOST
        kept = judgement.conditions[ConditionName.VOLUME_READY]
        assert kept.status == ws.condition(ConditionName.VOLUME_READY)
    if seen.resources.container is ContainerState.UNKNOWN:
        kept = judgement.conditions[ConditionName.CONTAINER_READY]
        assert kept.status == ws.condition(ConditionName.CONTAINER_READY)


def trusts_the_archive(ws: Workspace, seen: Observation) -> None:
    judgement = judge(ws, seen, NOW)
    decision = decide(ws, judgement, seen, NOW)
    if ws.error_reason is not ErrorReason.DATA_LOST and judgement.error_reason is ErrorReason.DATA_LOST:
        assert ws.condition(ConditionName.VOLUME_READY), "a loss can be that of the volume only"
        assert seen.resources.volume is Presence.ABSENT
    if decision.action is Action.CLAIM:
        makes_a_home = {Operation.RESTORING, Operation.PROVISIONING, Operation.CREATE_EMPTY_ARCHIVE}
        assert decision.operation not in makes_a_home
    if decision.completed in {Operation.ARCHIVING, Operation.CREATE_EMPTY_ARCHIVE} and ws.deleted_at is None:
        assert ws.condition(ConditionName.ARCHIVE_READY), "an archive that nobody ever saw completes nothing"


@count(2_500)
@given(workspaces(), blind_to_docker)
def test_docker_unknown_touches_nothing(ws: Workspace, seen: Observation) -> None:
    """PROMISE 3: with anything of Docker unknown no operation is claimed, resumed or complete, the more so no
    destructive one; what is unknown is never lost, and keeps its condition."""
    touches_nothing(ws, seen)


@count(2_500)
@given(workspaces(archived=True), blind_to_the_store)
def test_store_unknown_replaces_no_home(ws: Workspace, seen: Observation) -> None:
    """PROMISE 3: while the store does not answer, an archive is neither lost, nor restored, nor passed over for an
    empty home."""
    trusts_the_archive(ws, seen)


@pytest.mark.full
@pytest.mark.timeout(1800)
@count(50_000)
@given(workspaces(), blind_to_docker)
def test_docker_unknown_touches_nothing_in_full(ws: Workspace, seen: Observation) -> None:
    """PROMISE 3: the first half of the 100,000."""
    touches_nothing(ws, seen)


@pytest.mark.full
@pytest.mark.timeout(1800)
@count(50_000)
@given(workspaces(archived=True), blind_to_the_store)
def test_store_unknown_replaces_no_home_in_full(ws: Workspace, seen: Observation) -> None:
    """PROMISE 3: the second half of the 100,000."""
    trusts_the_archive(ws, seen)


def test_only_known_losses_are_said() -> None:
    """PROMISE 3: the destructive operations are what the rules above keep from the unknown."""
    for operation in DESTRUCTIVE:
        ws = row(operation, archive_op_id=OP, archive_key=OLD_KEY, home_ctx=HomeContext(restoring=OLD_KEY))
        seen = Observation(Resources(ContainerState.UNKNOWN, Presence.UNKNOWN))
        assert decide(ws, judge(ws, seen, NOW), seen, NOW).action is Action.LOOK_AGAIN
