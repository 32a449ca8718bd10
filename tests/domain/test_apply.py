"""What a decision makes of the row (SPEC 4): one new row, to be saved in one transaction."""

from dataclasses import replace
from datetime import timedelta

import pytest

from domain.apply import apply
from domain.judge import judge
from domain.model import DesiredState, ErrorReason, HomeContext, Operation, OperationId, Phase, Workspace
from domain.observation import UNKNOWN_RESOURCES, ContainerState, Observation, Presence, Resources
from domain.plan import decide
from tests.domain.rows import (
    DELETED_AT,
    EARLIER,
    NOW,
    OLD_KEY,
    OP,
    OWN_KEY,
    RESTORED,
    RESTORING,
    formerly,
    row,
    seen,
    violated_checks,
)

NEW_OP = OperationId("op-new")
PRESENT, ABSENT = Presence.PRESENT, Presence.ABSENT
READY = ContainerState.READY


def applied(ws: Workspace, observation: Observation) -> Workspace:
    judgement = judge(ws, observation, NOW)
    decision = decide(ws, judgement, observation, NOW)
    after = apply(ws, judgement, decision, observation, NOW, NEW_OP, "n2")
    assert violated_checks(after) == []
    return after


def test_a_claim_is_complete_from_the_start() -> None:
    """Operation, op_id and start are set together, and what an earlier one left of errors is gone."""
    after = applied(row(error_count=2, phase=Phase.STANDBY), seen(PRESENT))
    assert (after.operation, after.op_id, after.op_started_at) == (Operation.STARTING, NEW_OP, NOW)
    assert (after.error_count, after.error_reason) == (0, None)


def test_one_operation_follows_the_other() -> None:
    """What is complete makes way in the same row: never two, never a gap in which a user's change gets lost."""
    after = applied(row(Operation.PROVISIONING, error_count=1), seen(PRESENT))
    assert (after.phase, after.operation, after.op_id) == (Phase.STANDBY, Operation.STARTING, NEW_OP)
    assert after.error_count == 0


def test_completion_ends_the_operation() -> None:
    """operation=NONE, error_count=0, error_reason=NULL, the phase recomputed."""
    after = applied(row(Operation.STARTING, error_count=2, phase=Phase.STANDBY), seen(PRESENT, READY))
    assert (after.operation, after.op_id, after.op_started_at) == (Operation.NONE, None, None)
    assert (after.phase, after.phase_changed_at, after.error_count) == (Phase.RUNNING, NOW, 0)


def test_stopping_touches_the_last_access() -> None:
    """The time at rest counts from when STOPPING is complete, and never goes back."""
    ws = row(Operation.STOPPING, desired_state=DesiredState.STANDBY, last_access_at=EARLIER)
    assert applied(ws, seen(PRESENT)).last_access_at == NOW
    ahead = NOW + timedelta(seconds=5)
    assert applied(replace(ws, last_access_at=ahead), seen(PRESENT)).last_access_at == ahead
    assert applied(row(Operation.STARTING, last_access_at=EARLIER), seen(PRESENT, READY)).last_access_at == EARLIER


def test_an_archived_home_is_on_no_node() -> None:
    """It may be restored anywhere."""
    ws = row(
        Operation.ARCHIVING,
        desired_state=DesiredState.ARCHIVED,
        archive_op_id=OP,
        archive_key=OWN_KEY,
        home_ctx=RESTORED,
    )
    after = applied(ws, seen(ABSENT, archive=PRESENT))
    assert (after.phase, after.node, after.home_ctx) == (Phase.ARCHIVED, None, HomeContext())


@pytest.mark.parametrize(("key", "node"), [(None, "n2"), (OLD_KEY, "n2")])
def test_a_new_volume_is_placed_by_its_claim(key: str | None, node: str) -> None:
    """PROVISIONING and RESTORING say where; RESTORING marks the volume in the same row."""
    after = applied(row(archive_key=key, node=None), seen(archive=PRESENT if key else Presence.UNKNOWN))
    assert after.node == node
    assert after.home_ctx == HomeContext(restoring=key)


def test_other_claims_stay_on_their_node() -> None:
    """A volume does not move."""
    assert applied(row(node="n1"), seen(PRESENT)).node == "n1"


def test_a_restore_that_starts_over_marks_the_volume_again() -> None:
    """The marker was saved, then the volume vanished, before anyone saw it. RESTORING runs again: without the mark a
    crash in the middle of it would leave a partial home that counts as one."""
    ws = row(Operation.RESTORING, archive_key=OLD_KEY, home_ctx=RESTORED)
    after = applied(ws, seen(ABSENT, archive=PRESENT))
    assert (after.operation, after.op_id, after.home_ctx) == (Operation.RESTORING, OP, RESTORING)
    partial = applied(after, seen(PRESENT, archive=PRESENT))
    assert (partial.phase, partial.operation) == (Phase.ARCHIVED, Operation.RESTORING)


def test_a_failure_is_one_row() -> None:
    """phase=ERROR, operation=NONE, error_reason and error_count together; archive_op_id stays for GC."""
    ws = row(Operation.ARCHIVING, archive_op_id=OP, op_started_at=EARLIER, phase=Phase.STANDBY)
    after = applied(ws, seen(PRESENT))
    assert (after.phase, after.operation, after.op_id) == (Phase.ERROR, Operation.NONE, None)
    assert (after.error_reason, after.archive_op_id, after.phase_changed_at) == (ErrorReason.TIMEOUT, OP, NOW)
    assert after.error_count >= 1


def test_a_failed_restore_stays_marked() -> None:
    """After ERROR and recover the partial volume is still no home."""
    ws = row(Operation.RESTORING, archive_key=OLD_KEY, home_ctx=RESTORING, op_started_at=EARLIER)
    failed = applied(ws, seen(PRESENT, archive=PRESENT))
    assert (failed.phase, failed.home_ctx) == (Phase.ERROR, RESTORING)
    recovered = applied(replace(failed, error_reason=None), seen(PRESENT, archive=PRESENT))
    assert (recovered.phase, recovered.operation) == (Phase.ARCHIVED, Operation.RESTORING)


def test_a_loss_without_an_operation_is_saved() -> None:
    """No operation fails, yet the row says DataLost: the next look would not see the volume vanish again."""
    after = applied(row(conditions=formerly(volume=True), phase=Phase.STANDBY), seen(ABSENT))
    assert (after.phase, after.error_reason) == (Phase.ERROR, ErrorReason.DATA_LOST)
    assert applied(after, seen(ABSENT)).error_reason is ErrorReason.DATA_LOST


def test_deleted_leaves_nothing_in_flight() -> None:
    """GONE ends the operation and forgets the error that a deletion passes over."""
    ws = row(Operation.DELETING, desired_state=DesiredState.DELETED, deleted_at=DELETED_AT, phase=Phase.DELETING)
    after = applied(ws, seen())
    assert (after.phase, after.operation, after.error_reason) == (Phase.DELETED, Operation.NONE, None)


def test_an_unknown_observation_changes_nothing_but_its_time() -> None:
    """Conditions, phase and endpoint stay as they were."""
    former = formerly(volume=True, container=True)
    ws = row(phase=Phase.RUNNING, conditions=former, endpoint="127.0.0.1:4000")
    after = applied(ws, Observation(UNKNOWN_RESOURCES))
    assert after.observed_at == NOW
    assert after.endpoint == "127.0.0.1:4000"
    assert {n: c.status for n, c in after.conditions.items()} == {n: c.status for n, c in former.items()}
    assert (after.phase, after.phase_changed_at) == (Phase.RUNNING, EARLIER)


def test_the_endpoint_is_the_one_seen() -> None:
    """A container that was started anew is reached where it is now; one that is gone, nowhere."""
    ws = row(phase=Phase.RUNNING, endpoint="127.0.0.1:4000")
    moved = applied(ws, Observation(Resources(READY, PRESENT, "127.0.0.1:4001")))
    assert moved.endpoint == "127.0.0.1:4001"
    assert applied(ws, seen(PRESENT)).endpoint is None
