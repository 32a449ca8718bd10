"""What a row and an observation say: conditions, phase, and what is broken (SPEC 4)."""

from dataclasses import replace
from datetime import timedelta
from itertools import product

import pytest

from domain.judge import judge, needs_archive
from domain.model import ConditionName, ErrorReason, HomeContext, Operation, Phase, Workspace
from domain.observation import UNKNOWN_RESOURCES, ContainerState, Observation, Presence, Resources
from tests.domain.rows import (
    DELETED_AT,
    EARLIER,
    NOW,
    OLD_KEY,
    OLD_OP,
    OP,
    OWN_KEY,
    REMOVING,
    RESTORED,
    RESTORING,
    formerly,
    row,
    seen,
)

VOLUME = ConditionName.VOLUME_READY
ARCHIVE = ConditionName.ARCHIVE_READY
CONTAINER = ConditionName.CONTAINER_READY
HEALTHY = ConditionName.HEALTHY

PRESENT, ABSENT, UNKNOWN = Presence.PRESENT, Presence.ABSENT, Presence.UNKNOWN
READY, GONE = ContainerState.READY, ContainerState.ABSENT
NOT_READY = (ContainerState.UNREADY, ContainerState.STOPPED, ContainerState.ABSENT)


@pytest.mark.parametrize(
    ("key", "volume", "container", "archive", "phase"),
    [
        (None, ABSENT, GONE, UNKNOWN, Phase.PENDING),
        (OLD_KEY, ABSENT, GONE, PRESENT, Phase.ARCHIVED),
        (OLD_KEY, ABSENT, GONE, UNKNOWN, Phase.ARCHIVED),
        (None, PRESENT, GONE, UNKNOWN, Phase.STANDBY),
        (OLD_KEY, PRESENT, GONE, PRESENT, Phase.STANDBY),
        (OLD_KEY, PRESENT, GONE, ABSENT, Phase.STANDBY),
        (None, PRESENT, ContainerState.STOPPED, UNKNOWN, Phase.STANDBY),
        (None, PRESENT, ContainerState.UNREADY, UNKNOWN, Phase.STANDBY),
        (None, PRESENT, READY, UNKNOWN, Phase.RUNNING),
        (OLD_KEY, PRESENT, READY, UNKNOWN, Phase.RUNNING),
        (OLD_KEY, ABSENT, GONE, ABSENT, Phase.ERROR),
        (None, ABSENT, READY, UNKNOWN, Phase.ERROR),
        (OLD_KEY, ABSENT, READY, PRESENT, Phase.ERROR),
    ],
)
def test_phase_follows_what_is_there(
    key: str | None, volume: Presence, container: ContainerState, archive: Presence, phase: Phase
) -> None:
    """The phase is where the home is, and a promise that nothing keeps is ERROR."""
    assert judge(row(archive_key=key), seen(volume, container, archive), NOW).phase is phase


@pytest.mark.parametrize("reason", ErrorReason)
def test_an_error_stays_until_a_person_recovers(reason: ErrorReason) -> None:
    """Whatever is observed, an error_reason in the row is ERROR: only recover takes it away."""
    ws = row(error_reason=reason, error_count=3, conditions=formerly(volume=True))
    for container in (READY, *NOT_READY):
        judgement = judge(ws, seen(PRESENT, container), NOW)
        assert (judgement.phase, judgement.error_reason) == (Phase.ERROR, reason)
    assert judge(replace(ws, error_reason=None), seen(PRESENT), NOW).phase is Phase.STANDBY


@pytest.mark.parametrize("operation", Operation)
@pytest.mark.parametrize("error", [None, ErrorReason.TIMEOUT])
def test_deleted_is_said_only_when_known(operation: Operation, error: ErrorReason | None) -> None:
    """deleted_at comes first, also before an error of before; DELETED needs both resources seen to be gone."""
    ws = row(operation, deleted_at=DELETED_AT, error_reason=error, conditions=formerly(volume=True, container=True))
    for container, volume in product(ContainerState, Presence):
        phase = judge(ws, seen(volume, container), NOW).phase
        gone = container is GONE and volume is ABSENT
        assert phase is (Phase.DELETED if gone else Phase.DELETING)


def test_a_deletion_that_failed_waits_for_a_person() -> None:
    """Contract 10: an error that came after the deletion was asked for is ERROR, until a person recovers or asks
    again, or until nothing is left to delete."""
    ws = row(error_reason=ErrorReason.TIMEOUT, phase_changed_at=NOW, deleted_at=DELETED_AT)
    assert judge(ws, seen(PRESENT), NOW).phase is Phase.ERROR
    assert judge(ws, seen(ABSENT), NOW).phase is Phase.DELETED
    assert judge(replace(ws, error_reason=None), seen(PRESENT), NOW).phase is Phase.DELETING
    again = NOW + timedelta(seconds=1)
    assert judge(replace(ws, deleted_at=again), seen(PRESENT), again).phase is Phase.DELETING


def test_unknown_keeps_every_former_condition() -> None:
    """Nothing could be observed: conditions, with their times, and phase stay as they were."""
    for volume, container, key in product((True, False), (True, False), (None, OLD_KEY)):
        if container and not volume:
            continue
        former = formerly(volume=volume, container=container, archive=key)
        judgement = judge(row(conditions=former, archive_key=key), Observation(UNKNOWN_RESOURCES), NOW)
        assert {name: c.status for name, c in judgement.conditions.items()} == {
            name: c.status for name, c in former.items()
        }
        assert all(c.last_transition_time == EARLIER for c in judgement.conditions.values())
        assert judgement.error_reason is None


def test_unknown_of_a_new_row_is_false_not_broken() -> None:
    """A missing condition counts as False, a missing policy.healthy as True."""
    judgement = judge(row(), Observation(UNKNOWN_RESOURCES), NOW)
    assert judgement.conditions[VOLUME].reason == "NotObserved"
    assert [judgement.conditions[name].status for name in (VOLUME, ARCHIVE, CONTAINER, HEALTHY)] == [
        False,
        False,
        False,
        True,
    ]
    assert row().condition(HEALTHY)
    assert not row().condition(VOLUME)


def test_an_archive_condition_is_kept_for_its_own_key_only() -> None:
    """What was known of an older archive says nothing of a new one."""
    former = formerly(archive=OLD_KEY)
    kept = judge(row(conditions=former, archive_key=OLD_KEY), seen(PRESENT), NOW).conditions[ARCHIVE]
    assert kept == former[ARCHIVE]
    fresh = judge(row(conditions=former, archive_key=OWN_KEY), seen(PRESENT), NOW).conditions[ARCHIVE]
    assert (fresh.status, fresh.reason) == (False, "NotObserved")


def test_transition_time_moves_with_the_status_only() -> None:
    """last_transition_time is when the status changed, not when the reason did."""
    ws = row(conditions=formerly(volume=True, container=False))
    stopped = judge(ws, seen(PRESENT, ContainerState.STOPPED), NOW).conditions[CONTAINER]
    assert (stopped.reason, stopped.last_transition_time) == ("ContainerStopped", EARLIER)
    ready = judge(ws, seen(PRESENT, READY), NOW).conditions[CONTAINER]
    assert (ready.status, ready.last_transition_time) == (True, NOW)
    later = NOW + timedelta(hours=1)
    again = judge(replace(ws, conditions={CONTAINER: ready}), seen(PRESENT, READY), later)
    assert again.conditions[CONTAINER].last_transition_time == NOW


def test_a_volume_under_restore_is_not_a_home() -> None:
    """Until the marker is saved the phase stays ARCHIVED, whatever the operation is by then."""
    for operation in (Operation.RESTORING, Operation.NONE):
        ws = row(operation, archive_key=OLD_KEY, home_ctx=RESTORING)
        judgement = judge(ws, seen(PRESENT, archive=PRESENT), NOW)
        assert judgement.phase is Phase.ARCHIVED
        assert judgement.conditions[VOLUME].status is False
        assert judgement.conditions[VOLUME].reason == "RestoreIncomplete"
    restored = judge(row(Operation.RESTORING, archive_key=OLD_KEY, home_ctx=RESTORED), seen(PRESENT), NOW)
    assert restored.phase is Phase.STANDBY


def test_a_volume_under_removal_is_not_a_home() -> None:
    """From the moment its removal is said the archive is the home; a store that says it is gone means DataLost."""
    ws = row(archive_key=OWN_KEY, archive_op_id=OP, home_ctx=REMOVING, conditions=formerly(volume=True))
    judgement = judge(ws, seen(PRESENT, archive=PRESENT), NOW)
    assert (judgement.phase, judgement.conditions[VOLUME].reason) == (Phase.ARCHIVED, "RemovalIncomplete")
    assert judge(ws, seen(PRESENT, archive=ABSENT), NOW).error_reason is ErrorReason.DATA_LOST


def test_a_container_on_a_volume_under_restore_is_broken() -> None:
    """Contract 6 asks for the home, not for any volume."""
    judgement = judge(row(archive_key=OLD_KEY, home_ctx=RESTORING), seen(PRESENT, READY, PRESENT), NOW)
    assert judgement.error_reason is ErrorReason.CONTAINER_WITHOUT_VOLUME


LIVING = (Operation.NONE, Operation.PROVISIONING, Operation.STARTING, Operation.STOPPING)


@pytest.mark.parametrize("operation", LIVING)
@pytest.mark.parametrize("key", [None, OLD_KEY])
@pytest.mark.parametrize("container", ContainerState)
def test_a_vanished_volume_is_data_lost(operation: Operation, key: str | None, container: ContainerState) -> None:
    """A volume that nobody of ours removed is a loss, also when an older archive is there."""
    ws = row(operation, archive_key=key, conditions=formerly(volume=True, container=True))
    judgement = judge(ws, seen(ABSENT, container, PRESENT if key else UNKNOWN), NOW)
    assert (judgement.phase, judgement.error_reason) == (Phase.ERROR, ErrorReason.DATA_LOST)
    healthy = judgement.conditions[HEALTHY]
    assert (healthy.status, healthy.reason) == (False, "DataLost")


@pytest.mark.parametrize("reason", ErrorReason)
def test_a_loss_is_said_whatever_went_wrong_before(reason: ErrorReason) -> None:
    """In ERROR for another reason the volume vanishes: recover must not accept that loss unseen."""
    ws = row(phase=Phase.ERROR, error_reason=reason, error_count=3, conditions=formerly(volume=True))
    assert judge(ws, seen(ABSENT), NOW).error_reason is ErrorReason.DATA_LOST


@pytest.mark.parametrize("operation", [Operation.DELETING, Operation.RESTORING])
def test_what_we_remove_ourselves_is_no_loss(operation: Operation) -> None:
    """DELETING and RESTORING take the volume away on purpose."""
    ws = row(operation, archive_key=OLD_KEY, home_ctx=RESTORED, conditions=formerly(volume=True))
    assert judge(ws, seen(ABSENT, archive=PRESENT), NOW).error_reason is None


def test_archiving_removes_the_volume_only_behind_its_archive() -> None:
    """Order of contract 8: before archive_key is saved a volume that is gone is a loss, after it is no loss."""
    former = formerly(volume=True)
    lost = row(Operation.ARCHIVING, archive_op_id=OP, conditions=former)
    assert judge(lost, seen(ABSENT), NOW).error_reason is ErrorReason.DATA_LOST
    older = replace(lost, archive_key=OLD_KEY)
    assert judge(older, seen(ABSENT, archive=PRESENT), NOW).error_reason is ErrorReason.DATA_LOST
    saved = replace(lost, archive_key=OWN_KEY)
    judgement = judge(saved, seen(ABSENT, archive=PRESENT), NOW)
    assert (judgement.phase, judgement.error_reason) == (Phase.ARCHIVED, None)


@pytest.mark.parametrize("operation", [Operation.NONE, Operation.STARTING])
def test_a_volume_that_was_archived_since_may_go(operation: Operation) -> None:
    """ARCHIVING failed after archive_key was saved: the archive holds all, whoever removes the volume then.
    What is claimed afterwards forgets archive_op_id, and with it this exception."""
    ws = row(operation, archive_op_id=OLD_OP, archive_key=OLD_KEY, conditions=formerly(volume=True))
    assert judge(ws, seen(ABSENT, archive=PRESENT), NOW).error_reason is None
    forgotten = replace(ws, archive_op_id=None)
    assert judge(forgotten, seen(ABSENT, archive=PRESENT), NOW).error_reason is ErrorReason.DATA_LOST
    other = replace(ws, archive_op_id=OP)
    assert judge(other, seen(ABSENT, archive=PRESENT), NOW).error_reason is ErrorReason.DATA_LOST


def test_a_volume_that_comes_back_is_the_home_again() -> None:
    """A disk was not mounted: DataLost; it is there again and a person recovers: STANDBY, nothing was replaced."""
    ws = row(error_reason=ErrorReason.DATA_LOST, conditions=formerly(volume=False), archive_key=OLD_KEY)
    assert judge(ws, seen(PRESENT), NOW).phase is Phase.ERROR
    assert judge(replace(ws, error_reason=None), seen(PRESENT), NOW).phase is Phase.STANDBY


@pytest.mark.parametrize("home_ctx", [HomeContext(), RESTORING])
@pytest.mark.parametrize("operation", Operation)
@pytest.mark.parametrize(("volume", "archive"), list(product(Presence, Presence)))
def test_nothing_left_is_said_only_when_the_store_answered(
    operation: Operation, home_ctx: HomeContext, volume: Presence, archive: Presence
) -> None:
    """archive_key set, no home in a volume: DataLost exactly when the store said that the archive is not there."""
    ws = row(operation, archive_key=OLD_KEY, home_ctx=home_ctx)
    judgement = judge(ws, seen(volume, archive=archive), NOW)
    no_home = volume is ABSENT or (volume is PRESENT and home_ctx is RESTORING)
    expected = ErrorReason.DATA_LOST if archive is ABSENT and no_home else None
    assert judgement.error_reason is expected


@pytest.mark.parametrize("container", NOT_READY)
def test_container_without_volume_needs_a_running_container(container: ContainerState) -> None:
    """Contract 6: a container that runs without its volume is ERROR, what is left of one is not."""
    broken = judge(row(), seen(ABSENT, READY), NOW)
    assert (broken.phase, broken.error_reason) == (Phase.ERROR, ErrorReason.CONTAINER_WITHOUT_VOLUME)
    assert broken.conditions[HEALTHY].reason == "ContainerWithoutVolume"
    assert judge(row(), seen(ABSENT, container), NOW).phase is Phase.PENDING


@pytest.mark.parametrize(
    ("ws", "volume", "asks"),
    [
        (row(), ABSENT, False),
        (row(archive_key=OLD_KEY), PRESENT, False),
        (row(archive_key=OLD_KEY), ABSENT, True),
        (row(archive_key=OLD_KEY), UNKNOWN, True),
        (row(archive_key=OLD_KEY, home_ctx=RESTORING), PRESENT, True),
        (row(Operation.RESTORING, archive_key=OLD_KEY, home_ctx=RESTORED), PRESENT, False),
        (row(Operation.ARCHIVING, archive_key=OLD_KEY), PRESENT, True),
        (row(Operation.CREATE_EMPTY_ARCHIVE, archive_key=OWN_KEY), PRESENT, True),
    ],
)
def test_the_store_is_asked_where_the_archive_decides(ws: Workspace, volume: Presence, asks: bool) -> None:
    """While a volume holds the home its archive decides nothing, and idle workspaces cost no request."""
    assert needs_archive(ws, Resources(volume=volume)) is asks
