"""What is decided: the table of SPEC 4 as a golden file, completion, timeouts, claims."""

import os
from dataclasses import replace
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from domain.judge import judge
from domain.model import (
    DesiredState,
    ErrorReason,
    HomeContext,
    Operation,
    Phase,
    Workspace,
)
from domain.observation import UNKNOWN_RESOURCES, ContainerState, Observation, Presence
from domain.plan import DEFAULT_TIMEOUTS, Action, Decision, claim, decide, plan
from tests.domain.rows import (
    DELETED_AT,
    NOW,
    OLD_KEY,
    OLD_OP,
    OP,
    OWN_KEY,
    RESTORED,
    RESTORING,
    formerly,
    row,
    seen,
    violated_checks,
)

GOLDEN = Path(__file__).parent / "golden" / "plans.txt"

PRESENT, ABSENT, UNKNOWN = Presence.PRESENT, Presence.ABSENT, Presence.UNKNOWN
READY = ContainerState.READY
ARCHIVES = frozenset({Operation.ARCHIVING, Operation.CREATE_EMPTY_ARCHIVE})
IN_FLIGHT = tuple(operation for operation in Operation if operation is not Operation.NONE)


def decided(ws: Workspace, observation: Observation) -> Decision:
    return decide(ws, judge(ws, observation, NOW), observation, NOW)


def test_plans_are_those_of_the_golden_file() -> None:
    """PROMISE 1: every phase × desired_state × operation has the one decision that a person read and agreed to.
    UPDATE_GOLDEN=1 writes the file anew: read the difference before you keep it."""
    lines = [_line(*case) for case in product(Phase, DesiredState, Operation)]
    text = "\n".join(["# phase desired_state operation → judged phase: decision", *lines, ""])
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text.splitlines() == GOLDEN.read_text().splitlines()


def _line(phase: Phase, desired: DesiredState, operation: Operation) -> str:
    ws, observation = _canonical(phase, desired, operation)
    name = f"{phase:8} {desired:8} {operation:20}"
    if broken := violated_checks(ws):
        return f"{name} → impossible: {', '.join(broken)}"
    judgement = judge(ws, observation, NOW)
    decision = decide(ws, judgement, observation, NOW)
    said: list[str] = [decision.action]
    said += [decision.operation] if decision.operation is not Operation.NONE else []
    said += [f"({decision.reason})"] if decision.reason else []
    said += [f"after {decision.completed}"] if decision.completed is not Operation.NONE else []
    return f"{name} → {judgement.phase}: {' '.join(said)}"


def _canonical(phase: Phase, desired: DesiredState, operation: Operation) -> tuple[Workspace, Observation]:
    """The ordinary world of a phase: all was observed, and an operation in flight saved what it saves by then."""
    volume = phase in {Phase.STANDBY, Phase.RUNNING, Phase.ERROR, Phase.DELETING}
    container = phase in {Phase.RUNNING, Phase.DELETING}
    key = None
    if phase is Phase.ARCHIVED or operation is Operation.RESTORING:
        key = OWN_KEY if operation in ARCHIVES else OLD_KEY
    columns: dict[str, Any] = {
        "phase": phase,
        "desired_state": desired,
        "deleted_at": DELETED_AT if desired is DesiredState.DELETED else None,
        "error_reason": ErrorReason.TIMEOUT if phase is Phase.ERROR else None,
        "conditions": formerly(volume=volume, container=container, archive=key),
        "archive_key": key,
        "archive_op_id": OP if operation in ARCHIVES else None,
    }
    if operation is Operation.RESTORING:
        columns["home_ctx"] = RESTORED if volume else RESTORING
    observation = seen(
        PRESENT if volume else ABSENT,
        READY if container else ContainerState.ABSENT,
        PRESENT if key else UNKNOWN,
    )
    return row(operation, **columns), observation


ARCHIVING = {"archive_op_id": OP, "archive_key": OWN_KEY}


@pytest.mark.parametrize(
    ("operation", "columns", "observation", "complete"),
    [
        (Operation.PROVISIONING, {}, seen(PRESENT), True),
        (Operation.PROVISIONING, {}, seen(ABSENT), False),
        (Operation.STARTING, {}, seen(PRESENT, READY), True),
        (Operation.STARTING, {}, seen(PRESENT, ContainerState.UNREADY), False),
        (Operation.STARTING, {}, seen(PRESENT, ContainerState.STOPPED), False),
        (Operation.STARTING, {}, seen(PRESENT), False),
        (Operation.STOPPING, {}, seen(PRESENT), True),
        (Operation.STOPPING, {}, seen(PRESENT, READY), False),
        # It may still be saving files, and even stopped it holds the volume: STOPPING removes the container.
        (Operation.STOPPING, {}, seen(PRESENT, ContainerState.UNREADY), False),
        (Operation.STOPPING, {}, seen(PRESENT, ContainerState.STOPPED), False),
        (Operation.RESTORING, {"archive_key": OLD_KEY, "home_ctx": RESTORED}, seen(PRESENT), True),
        (
            Operation.RESTORING,
            {"archive_key": OLD_KEY, "home_ctx": RESTORED},
            seen(PRESENT, ContainerState.STOPPED),
            False,
        ),
        (
            Operation.RESTORING,
            {"archive_key": OLD_KEY, "home_ctx": RESTORED},
            seen(PRESENT, ContainerState.UNREADY),
            False,
        ),
        (Operation.RESTORING, {"archive_key": OLD_KEY, "home_ctx": RESTORED}, seen(PRESENT, READY), False),
        (Operation.RESTORING, {"archive_key": OLD_KEY, "home_ctx": RESTORING}, seen(PRESENT), False),
        (Operation.RESTORING, {"archive_key": OLD_KEY, "home_ctx": RESTORED}, seen(ABSENT, archive=PRESENT), False),
        (Operation.RESTORING, {"archive_key": OWN_KEY, "home_ctx": RESTORED}, seen(PRESENT), False),
        (Operation.ARCHIVING, ARCHIVING, seen(ABSENT, archive=PRESENT), True),
        (Operation.ARCHIVING, ARCHIVING, seen(ABSENT, archive=UNKNOWN), False),
        (Operation.ARCHIVING, ARCHIVING, seen(PRESENT, archive=PRESENT), False),
        (Operation.ARCHIVING, ARCHIVING | {"archive_key": OLD_KEY}, seen(PRESENT, archive=PRESENT), False),
        (Operation.ARCHIVING, ARCHIVING | {"archive_key": None}, seen(PRESENT), False),
        (Operation.CREATE_EMPTY_ARCHIVE, ARCHIVING, seen(ABSENT, archive=PRESENT), True),
        (Operation.CREATE_EMPTY_ARCHIVE, ARCHIVING, seen(ABSENT, archive=UNKNOWN), False),
        (Operation.CREATE_EMPTY_ARCHIVE, ARCHIVING | {"archive_key": None}, seen(ABSENT), False),
    ],
)
def test_an_operation_is_complete_when_it_is_observed(
    operation: Operation, columns: dict[str, Any], observation: Observation, complete: bool
) -> None:
    """Contract 1: the observed conditions complete an operation, and nothing else does."""
    decision = decided(row(operation, **columns), observation)
    if complete:
        assert decision.completed is operation
    else:
        assert decision == Decision(Action.RESUME, operation)


@pytest.mark.parametrize("operation", IN_FLIGHT)
def test_nothing_is_complete_unless_everything_was_seen(operation: Operation) -> None:
    """Half an observation completes nothing, and runs nothing."""
    ws = row(operation, **ARCHIVING, home_ctx=HomeContext(restore_marker=OWN_KEY))
    for container, volume in product(ContainerState, Presence):
        if UNKNOWN in {container.value, volume.value}:
            decision = decided(ws, seen(volume, container, PRESENT))
            assert decision.completed is Operation.NONE
            assert decision.action in {Action.LOOK_AGAIN, Action.FAIL}


@pytest.mark.parametrize("operation", IN_FLIGHT)
@pytest.mark.parametrize("blind", [True, False])
def test_an_operation_fails_after_its_timeout(operation: Operation, blind: bool) -> None:
    """At the timeout it still runs; a moment later it is Timeout, also when nothing can be observed."""
    ws = row(operation, archive_op_id=OP, archive_key=OLD_KEY, home_ctx=RESTORING, conditions=formerly())
    if operation is Operation.DELETING:
        ws = replace(ws, deleted_at=DELETED_AT, desired_state=DesiredState.DELETED)
    container = READY if operation is Operation.STOPPING else ContainerState.STOPPED
    if container is READY:
        ws = replace(ws, home_ctx=HomeContext())
    observation = Observation(UNKNOWN_RESOURCES) if blind else seen(PRESENT, container, PRESENT)
    if operation is Operation.PROVISIONING and not blind:
        observation = seen(ABSENT, container, PRESENT)
    at_the_timeout = NOW - DEFAULT_TIMEOUTS[operation]
    on_time = replace(ws, op_started_at=at_the_timeout)
    assert decided(on_time, observation).action is (Action.LOOK_AGAIN if blind else Action.RESUME)
    late = replace(ws, op_started_at=at_the_timeout - timedelta(milliseconds=1))
    assert decided(late, observation) == Decision(Action.FAIL, operation, reason=ErrorReason.TIMEOUT)


def test_complete_is_complete_however_late() -> None:
    """What was reached after the timeout was reached."""
    ws = row(Operation.STARTING, op_started_at=NOW - timedelta(days=1))
    assert decided(ws, seen(PRESENT, READY)) == Decision(Action.NOTHING, completed=Operation.STARTING)


def test_timeouts_are_a_setting() -> None:
    """The caller's timeouts count."""
    ws = row(Operation.STARTING)
    judgement = judge(ws, seen(PRESENT), NOW)
    short: dict[Operation, timedelta] = dict.fromkeys(IN_FLIGHT, timedelta(milliseconds=1))
    assert decide(ws, judgement, seen(PRESENT), NOW, short).action is Action.FAIL
    assert set(DEFAULT_TIMEOUTS) == set(IN_FLIGHT)


def test_an_operation_ends_when_the_home_is_lost() -> None:
    """A loss found on the way fails the operation with its own reason."""
    ws = row(Operation.STARTING, conditions=formerly(volume=True))
    expected = Decision(Action.FAIL, Operation.STARTING, reason=ErrorReason.DATA_LOST)
    assert decided(ws, seen(ABSENT)) == expected


def test_an_error_waits_for_a_person() -> None:
    """ERROR and not deleted: nothing, whatever is desired."""
    for desired in (DesiredState.RUNNING, DesiredState.STANDBY, DesiredState.ARCHIVED):
        ws = row(error_reason=ErrorReason.UNREACHABLE, error_count=3, desired_state=desired)
        assert decided(ws, seen(PRESENT)) == Decision(Action.NOTHING)


def test_deleting_is_possible_in_error() -> None:
    """ERROR and deleted: DELETING; and once nothing is left, GONE."""
    ws = row(error_reason=ErrorReason.DATA_LOST, desired_state=DesiredState.DELETED, deleted_at=DELETED_AT)
    assert decided(ws, seen(PRESENT)) == Decision(Action.CLAIM, Operation.DELETING)
    assert decided(ws, seen(ABSENT)) == Decision(Action.GONE)
    deleting = replace(ws, operation=Operation.DELETING, op_id=OP, op_started_at=NOW, error_reason=None)
    assert decided(deleting, seen(ABSENT)) == Decision(Action.GONE, completed=Operation.DELETING)
    failed = replace(ws, phase_changed_at=NOW)
    assert decided(failed, seen(PRESENT)) == Decision(Action.NOTHING), "retries are bounded, also those of deleting"


@pytest.mark.parametrize("container", [ContainerState.UNREADY, ContainerState.STOPPED])
@pytest.mark.parametrize("desired", [DesiredState.STANDBY, DesiredState.ARCHIVED])
def test_no_home_is_archived_under_a_container(container: ContainerState, desired: DesiredState) -> None:
    """RUNNING→ARCHIVED is STOPPING, then ARCHIVING, also when the container does not answer or has ended."""
    assert decided(row(desired_state=desired), seen(PRESENT, container)) == Decision(Action.CLAIM, Operation.STOPPING)


@pytest.mark.parametrize("home_ctx", [HomeContext(), RESTORING])
def test_restoring_waits_for_the_store(home_ctx: HomeContext) -> None:
    """Nothing is thrown away for a restore before its archive was seen."""
    volume = ABSENT if home_ctx.restoring is None else PRESENT
    ws = row(archive_key=OLD_KEY, home_ctx=home_ctx)
    assert decided(ws, seen(volume)) == Decision(Action.LOOK_AGAIN)
    assert decided(ws, seen(volume, archive=PRESENT)) == Decision(Action.CLAIM, Operation.RESTORING)


def test_deleted_leads_to_deleting_from_everywhere() -> None:
    """Delete from any phase, also ERROR."""
    for phase in Phase:
        expected = Operation.NONE if phase is Phase.DELETED else Operation.DELETING
        assert plan(phase, DesiredState.DELETED) is expected


@pytest.mark.parametrize("operation", IN_FLIGHT)
def test_a_claim_names_its_archive(operation: Operation) -> None:
    """What archives takes its own id before anything is uploaded, what may change the home forgets the last one,
    and RESTORING marks the volume as no home."""
    ws = row(archive_op_id=OLD_OP, archive_key=OLD_KEY, home_ctx=RESTORED)
    claimed = claim(ws, operation, OP)
    assert (claimed.operation, claimed.op_id) == (operation, OP)
    expected = {Operation.ARCHIVING: OP, Operation.CREATE_EMPTY_ARCHIVE: OP, Operation.DELETING: OLD_OP}
    assert claimed.archive_op_id == expected.get(operation)
    assert claimed.home_ctx == (RESTORING if operation is Operation.RESTORING else RESTORED)
