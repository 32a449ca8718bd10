"""What a decision makes of the row. Pure: the caller saves the result in one transaction."""

from dataclasses import replace
from datetime import datetime

from domain.judge import Judgement
from domain.model import Condition, ConditionName, DesiredState, HomeContext, Operation, OperationId, Phase, Workspace
from domain.observation import ContainerState, Observation
from domain.pacing import KEEPS_ENDING, Pause
from domain.plan import Action, Decision, claim

PLACED_BY = frozenset({Operation.PROVISIONING, Operation.RESTORING})


def apply(
    ws: Workspace,
    judgement: Judgement,
    decision: Decision,
    seen: Observation,
    now: datetime,
    op_id: OperationId,
    node: str | None = None,
) -> Workspace:
    """The new row. `op_id` names what is claimed, `node` is where a new volume is placed."""
    row = _observed(ws, judgement, seen, now)
    if decision.completed is not Operation.NONE:
        row = _completed(row, decision.completed, now)
    match decision.action:
        case Action.CLAIM:
            row = _claimed(row, decision.operation, op_id, now, node)
        case Action.RESUME if decision.operation is Operation.RESTORING:
            # It starts over with a fresh volume, also where an earlier attempt had saved the marker.
            row = replace(row, home_ctx=HomeContext(restoring=row.archive_key))
        case Action.FAIL:
            failed = _without_operation(row)
            row = replace(failed, phase=Phase.ERROR, error_reason=decision.reason, error_count=max(1, row.error_count))
        case Action.PAUSE if decision.pause is not None:
            row = _paused(row, decision.pause)
        case Action.GONE:
            row = replace(_without_operation(row), error_count=0)
    if not _goes_on(row):
        row = replace(row, move_to=None)
    return row if row.phase is ws.phase else replace(row, phase_changed_at=now)


def _goes_on(row: Workspace) -> bool:
    """Whether a place that is kept for it on another node will be taken: not by what is deleted, waits for a person, or
    stays in the store. One that is recovered is sent off anew."""
    stays = row.phase is Phase.ARCHIVED and row.desired_state is DesiredState.ARCHIVED
    over = row.phase is Phase.ERROR or row.desired_state is DesiredState.DELETED
    return not over and not (stays and row.operation is Operation.NONE)


def _observed(ws: Workspace, judgement: Judgement, seen: Observation, now: datetime) -> Workspace:
    known = seen.resources.container is not ContainerState.UNKNOWN
    return replace(
        ws,
        conditions=judgement.conditions,
        observed_at=now,
        phase=judgement.phase,
        error_reason=judgement.error_reason if judgement.phase is Phase.ERROR else None,
        endpoint=seen.resources.endpoint if known else ws.endpoint,
    )


def _completed(row: Workspace, operation: Operation, now: datetime) -> Workspace:
    row = replace(_without_operation(row), error_count=0)
    match operation:
        case Operation.STOPPING:
            return replace(row, last_access_at=max(now, row.last_access_at or now))
        case Operation.ARCHIVING:
            return replace(row, node=None, home_ctx=HomeContext())
    return row


def _claimed(row: Workspace, operation: Operation, op_id: OperationId, now: datetime, node: str | None) -> Workspace:
    claimed = claim(row, operation, op_id)
    return replace(
        row,
        operation=claimed.operation,
        op_id=claimed.op_id,
        op_started_at=now,
        archive_op_id=claimed.archive_op_id,
        home_ctx=claimed.home_ctx,
        error_count=0,
        error_reason=None,
        node=node if operation in PLACED_BY else row.node,
        move_to=None if operation in PLACED_BY else row.move_to,
    )


def _paused(row: Workspace, pause: Pause) -> Workspace:
    """The row says so, for those who ask why nobody is on the way."""
    name = ConditionName.CONTAINER_READY
    since = row.conditions[name].last_transition_time
    ended = Condition(status=False, reason=KEEPS_ENDING, message=pause.in_words(), last_transition_time=since)
    return replace(row, conditions={**row.conditions, name: ended})


def _without_operation(row: Workspace) -> Workspace:
    return replace(row, operation=Operation.NONE, op_id=None, op_started_at=None)
