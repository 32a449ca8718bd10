"""The rules of nodes, pure: what a lost node leads to, which way a home leaves, what a row says by itself."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from domain.apply import apply
from domain.judge import judge
from domain.knowledge import has_home, remembered
from domain.model import ConditionName, DesiredState, ErrorReason, Operation, Phase, Workspace
from domain.observation import UNKNOWN_RESOURCES, ContainerState, Observation, Presence
from domain.plan import Action, claim, decide
from tests.domain.rows import (
    DELETED_AT,
    NOW,
    OLD_KEY,
    OLD_OP,
    OP,
    RESTORED,
    RESTORING,
    formerly,
    row,
    seen,
    violated_checks,
)

LOST = [Observation(UNKNOWN_RESOURCES, archive, node_lost=True) for archive in Presence]


def rows() -> Iterator[Workspace]:
    """Every row that PostgreSQL would take, of those that differ in what the rules look at."""
    for phase, operation, desired, volume, container, home in product(
        Phase, Operation, DesiredState, (False, True), (False, True), (None, RESTORING, RESTORED)
    ):
        made = row(
            operation,
            phase=phase,
            desired_state=desired,
            conditions=formerly(volume=volume, container=container, archive=OLD_KEY if home else None),
            deleted_at=DELETED_AT if desired is DesiredState.DELETED else None,
            archive_key=OLD_KEY if home else None,
            archive_op_id=OP,
            **({"home_ctx": home} if home else {}),
        )
        if not violated_checks(made) and phase is not Phase.DELETED:
            yield made


def test_a_lost_node_leads_to_unreachable_and_to_nothing_else() -> None:
    """Whatever was under way: no operation begins or goes on, nothing is called lost, what was known is kept."""
    count = 0
    for ws, seeing in product(rows(), LOST):
        judgement = judge(ws, seeing, NOW)
        decision = decide(ws, judgement, seeing, NOW)
        after = apply(ws, judgement, decision, seeing, NOW, OP)
        assert decision.action in {Action.NOTHING, Action.FAIL}, (ws, decision)
        assert (after.phase, after.error_reason) == (Phase.ERROR, ErrorReason.UNREACHABLE), ws
        assert after.operation is Operation.NONE
        assert violated_checks(after) == []
        for name in (ConditionName.VOLUME_READY, ConditionName.CONTAINER_READY):
            assert after.conditions[name] == ws.conditions[name]
        assert (after.node, after.archive_key, after.home_ctx) == (ws.node, ws.archive_key, ws.home_ctx)
        count += 1
    assert count > 500


@pytest.mark.parametrize("desired", [DesiredState.RUNNING, DesiredState.STANDBY])
def test_a_home_leaves_by_way_of_its_archive_and_ends_where_it_was_wanted(desired: DesiredState) -> None:
    """One level at a time; desired_state stays as it is; the place that was kept is taken, and then kept no more."""
    ws = row(
        desired_state=desired,
        phase=Phase(desired),
        move_to="n2",
        conditions=formerly(volume=True, container=desired is DesiredState.RUNNING),
    )
    container = ContainerState.READY if desired is DesiredState.RUNNING else ContainerState.ABSENT
    seeing = seen(Presence.PRESENT, container)
    operations: list[tuple[Operation, str | None]] = []
    for _ in range(8):
        judgement = judge(ws, seeing, NOW)
        decision = decide(ws, judgement, seeing, NOW)
        if decision.action is not Action.CLAIM:
            break
        ws = apply(ws, judgement, decision, seeing, NOW, OP, "n2")
        operations.append((ws.operation, ws.node))
        ws, seeing = _done(ws)
    down = [(Operation.STOPPING, "n1")] if desired is DesiredState.RUNNING else []
    up = [(Operation.STARTING, "n2")] if desired is DesiredState.RUNNING else []
    assert operations == [*down, (Operation.ARCHIVING, "n1"), (Operation.RESTORING, "n2"), *up]
    assert (ws.desired_state, ws.node, ws.move_to) == (desired, "n2", None)


def _done(ws: Workspace) -> tuple[Workspace, Observation]:
    """The operation has done its work."""
    match ws.operation:
        case Operation.STOPPING:
            return ws, seen(Presence.PRESENT)
        case Operation.ARCHIVING:
            assert ws.archive_op_id
            return replace(ws, archive_key=f"{ws.id}/{ws.archive_op_id}/home.tar.zst"), seen(archive=Presence.PRESENT)
        case Operation.RESTORING:
            marked = replace(ws.home_ctx, restoring=None, restore_marker=ws.archive_key)
            return replace(ws, home_ctx=marked), seen(Presence.PRESENT)
    return ws, seen(Presence.PRESENT, ContainerState.READY)


def test_a_home_that_leaves_and_is_deleted_is_deleted() -> None:
    ws = row(desired_state=DesiredState.DELETED, deleted_at=DELETED_AT, phase=Phase.STANDBY, move_to="n2")
    seeing = seen(Presence.PRESENT)
    assert decide(ws, judge(ws, seeing, NOW), seeing, NOW).operation is Operation.DELETING


@pytest.mark.parametrize("volume", [Presence.PRESENT, Presence.ABSENT])
@pytest.mark.parametrize("container", [state for state in ContainerState if state is not ContainerState.UNKNOWN])
def test_a_row_says_what_was_seen(volume: Presence, container: ContainerState) -> None:
    """What one worker observed and saved, another one reads from the row."""
    ws = row()
    after = replace(ws, conditions=judge(ws, seen(volume, container), NOW).conditions)
    assert (remembered(after).volume, remembered(after).container) == (volume, container)


def test_a_volume_that_was_never_complete_is_no_home() -> None:
    whole = row(conditions=formerly(volume=True))
    assert has_home(whole)
    restoring = claim(row(archive_key=OLD_KEY, archive_op_id=OLD_OP), Operation.RESTORING, OP).home_ctx
    assert not has_home(replace(whole, home_ctx=restoring))
    assert not has_home(row(conditions=formerly()))
