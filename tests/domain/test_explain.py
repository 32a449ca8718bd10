"""Explain has words for everything, and its times are those that TTL goes by."""

from datetime import UTC, datetime, timedelta
from itertools import product

from domain.explain import LastActivity, explain
from domain.model import (
    Condition,
    ConditionName,
    DesiredState,
    ErrorReason,
    Operation,
    Phase,
    UserId,
    Workspace,
    WorkspaceId,
)
from domain.pacing import KEEPS_ENDING, MOST, Pause
from domain.plan import DEFAULT_TIMEOUTS
from domain.recovering import Recovering
from domain.ttl import NextStep, TtlDefaults

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DEFAULTS = TtlDefaults(timedelta(seconds=600), timedelta(seconds=1800), timedelta(seconds=30))


def workspace(phase: Phase, desired: DesiredState, **fields: object) -> Workspace:
    made: dict[str, object] = {
        "id": WorkspaceId("w"),
        "owner_user_id": UserId("u"),
        "name": "n",
        "image_ref": "i",
        "desired_state": desired,
        "created_at": NOW,
        "updated_at": NOW,
        "phase_changed_at": NOW,
        "phase": phase,
        **fields,
    }
    return Workspace(**made)  # type: ignore[arg-type]


def test_every_combination_has_words() -> None:
    for phase, desired, operation in product(Phase, DesiredState, Operation):
        for error in (None, *ErrorReason):
            told = explain(workspace(phase, desired, operation=operation, error_reason=error), DEFAULTS)
            assert told.because
            if operation is not Operation.NONE:
                assert told.waiting_for
            if phase is Phase.ERROR and error:
                assert told.what_to_do


def test_a_failed_attempt_is_one_of_as_many_as_are_set() -> None:
    ws = workspace(Phase.STANDBY, DesiredState.RUNNING, operation=Operation.STARTING, error_count=1)
    assert "attempt 2 of 3" in (explain(ws, DEFAULTS).waiting_for or "")
    assert "attempt 2 of 5" in (explain(ws, DEFAULTS, max_retries=5).waiting_for or "")


def test_running_goes_to_sleep_after_its_last_activity() -> None:
    seen = NOW + timedelta(minutes=5)
    ws = workspace(Phase.RUNNING, DesiredState.RUNNING, last_access_at=NOW + timedelta(minutes=1))
    told = explain(ws, DEFAULTS, LastActivity(seen, "ws-in"))
    assert told.next_step == NextStep(DesiredState.STANDBY, seen + timedelta(seconds=630))
    assert told.last_activity == LastActivity(seen, "ws-in")


def test_activity_older_than_the_row_is_not_the_latest() -> None:
    ws = workspace(Phase.RUNNING, DesiredState.RUNNING, last_access_at=NOW)
    told = explain(ws, DEFAULTS, LastActivity(NOW - timedelta(minutes=1), "http"))
    assert told.last_activity == LastActivity(NOW)


def test_standby_is_archived_after_its_time_and_zero_is_never() -> None:
    ws = workspace(Phase.STANDBY, DesiredState.STANDBY)
    assert explain(ws, DEFAULTS).next_step == NextStep(DesiredState.ARCHIVED, NOW + timedelta(seconds=1800))
    never = workspace(Phase.STANDBY, DesiredState.STANDBY, archive_ttl_seconds=0)
    assert explain(never, DEFAULTS).next_step is None


def test_an_operation_is_given_up_after_its_timeout() -> None:
    begun = NOW + timedelta(minutes=1)
    busy = workspace(Phase.STANDBY, DesiredState.STANDBY, operation=Operation.ARCHIVING, op_started_at=begun)
    expected = NextStep(None, begun + timedelta(seconds=1800), ErrorReason.TIMEOUT)
    assert explain(busy, DEFAULTS).next_step == expected
    own = {**DEFAULT_TIMEOUTS, Operation.ARCHIVING: timedelta(seconds=5)}
    given_up = explain(busy, DEFAULTS, timeouts=own).next_step
    assert given_up
    assert given_up.at == begun + timedelta(seconds=5)


def test_an_operation_that_waits_for_its_turn_is_not_given_up() -> None:
    """Its time has not begun."""
    ws = workspace(Phase.STANDBY, DesiredState.RUNNING, operation=Operation.STARTING, op_started_at=NOW, node="b")
    told = explain(ws, DEFAULTS, waits=True)
    assert told.next_step is None
    assert told.waiting_for == "STARTING: it waits for its turn at node b, behind what was asked for earlier."


def test_nothing_happens_by_itself_on_the_way_or_in_error() -> None:
    assert explain(workspace(Phase.STANDBY, DesiredState.RUNNING), DEFAULTS).next_step is None
    assert explain(workspace(Phase.ARCHIVED, DesiredState.ARCHIVED), DEFAULTS).next_step is None


def seen(name: ConditionName, reason: str, *, status: bool = False) -> dict[ConditionName, Condition]:
    return {name: Condition(status=status, reason=reason, message="", last_transition_time=NOW)}


def lost(**fields: object) -> Workspace:
    return workspace(Phase.ERROR, DesiredState.STANDBY, error_reason=ErrorReason.DATA_LOST, **fields)


def test_a_loss_is_told_by_name_and_with_what_it_goes_on() -> None:
    gone = seen(ConditionName.VOLUME_READY, "VolumeAbsent")
    told = explain(lost(node="b", conditions=gone), DEFAULTS)
    assert "its volume ws-w-home on node b is gone" in told.because
    assert "It goes on with an empty home, unless its volume is put back first." in (told.what_to_do or "")
    assert told.recovering
    assert told.recovering.gives_up == "Everything that was in its home."
    archived = explain(lost(node="b", archive_key="k", conditions=gone), DEFAULTS, archived_at=NOW)
    assert "its last archive, of 2026-01-01 00:00 UTC" in (archived.what_to_do or "")
    both = {**gone, **seen(ConditionName.ARCHIVE_READY, "ArchiveAbsent")}
    assert "Its archive k is gone too." in explain(lost(node="b", archive_key="k", conditions=both), DEFAULTS).because
    stored = explain(lost(archive_key="k", conditions=both), DEFAULTS)
    assert "its archive k is gone" in stored.because
    assert "leads to the same error" in (stored.what_to_do or "")


def test_a_volume_that_was_put_back_is_no_loss_any_more() -> None:
    """But it is still a person who recovers it."""
    back = lost(node="b", archive_key="k", conditions=seen(ConditionName.VOLUME_READY, "VolumePresent", status=True))
    told = explain(back, DEFAULTS)
    assert "It is there again." in told.because
    assert told.waiting_for == "A person: nothing happens by itself in ERROR."
    assert told.what_to_do
    assert "accepts the loss" not in told.what_to_do
    assert told.recovering == Recovering("Its volume is there again: it goes on with what is in it by then.", None)


def test_only_a_loss_is_to_be_accepted() -> None:
    for reason in ErrorReason:
        told = explain(workspace(Phase.ERROR, DesiredState.STANDBY, error_reason=reason), DEFAULTS)
        assert (told.recovering is not None) == (
            reason in {ErrorReason.DATA_LOST, ErrorReason.CONTAINER_WITHOUT_VOLUME}
        )
    assert explain(lost(deleted_at=NOW), DEFAULTS).recovering is None


def test_attempts_are_counted_against_the_setting() -> None:
    ws = workspace(Phase.STANDBY, DesiredState.RUNNING, operation=Operation.STARTING, error_count=1)
    assert "attempt 2 of 3," in (explain(ws, DEFAULTS).waiting_for or "")
    assert "attempt 2 of 5," in (explain(ws, DEFAULTS, max_retries=5).waiting_for or "")
    assert "the last attempt failed" in (explain(ws, DEFAULTS, max_retries=1).waiting_for or "")


def test_a_container_that_keeps_ending_is_said_to_with_when_it_is_started_again() -> None:
    """Nobody is on the way, and that is meant: until when, how often it ended, and what a person can do."""
    ended = Condition(False, KEEPS_ENDING, Pause(7, NOW + timedelta(seconds=16)).in_words(), NOW)
    ws = workspace(Phase.STANDBY, DesiredState.RUNNING, conditions={ConditionName.CONTAINER_READY: ended})
    told = explain(ws, DEFAULTS)
    assert told.waiting_for == (
        "Its next start: the container ended 7 times in a row, and is started again at 2026-01-01 00:00:16 UTC."
    )
    assert "stop it, then start it" in (told.what_to_do or "")
    assert "at least 13 times" in Pause(MOST, NOW).in_words()
    asleep = workspace(Phase.STANDBY, DesiredState.STANDBY, conditions={ConditionName.CONTAINER_READY: ended})
    assert explain(asleep, DEFAULTS).waiting_for is None
    assert explain(asleep, DEFAULTS).what_to_do is None
