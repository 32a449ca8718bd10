"""Control: what to do next, given the judgement (SPEC 4). Pure; the caller applies the decision."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType

from domain.judge import Judgement
from domain.model import (
    ConditionName,
    DesiredState,
    ErrorReason,
    HomeContext,
    Operation,
    OperationId,
    Phase,
    Workspace,
)
from domain.naming import archive_key
from domain.observation import ContainerState, Observation, Presence
from domain.pacing import Pause

Timeouts = Mapping[Operation, timedelta]

DEFAULT_TIMEOUTS: Timeouts = MappingProxyType(
    {
        Operation.PROVISIONING: timedelta(seconds=300),
        Operation.CREATE_EMPTY_ARCHIVE: timedelta(seconds=300),
        Operation.RESTORING: timedelta(seconds=1800),
        Operation.STARTING: timedelta(seconds=300),
        Operation.ARCHIVING: timedelta(seconds=1800),
        Operation.STOPPING: timedelta(seconds=300),
        Operation.DELETING: timedelta(seconds=300),
    }
)

PLANS: Mapping[tuple[Phase, DesiredState], Operation] = MappingProxyType(
    {
        (Phase.PENDING, DesiredState.STANDBY): Operation.PROVISIONING,
        (Phase.PENDING, DesiredState.RUNNING): Operation.PROVISIONING,
        (Phase.PENDING, DesiredState.ARCHIVED): Operation.CREATE_EMPTY_ARCHIVE,
        (Phase.ARCHIVED, DesiredState.STANDBY): Operation.RESTORING,
        (Phase.ARCHIVED, DesiredState.RUNNING): Operation.RESTORING,
        (Phase.STANDBY, DesiredState.RUNNING): Operation.STARTING,
        (Phase.STANDBY, DesiredState.ARCHIVED): Operation.ARCHIVING,
        (Phase.RUNNING, DesiredState.STANDBY): Operation.STOPPING,
        (Phase.RUNNING, DesiredState.ARCHIVED): Operation.STOPPING,
    }
)


class Action(StrEnum):
    NOTHING = "NOTHING"
    """Phase is what is desired, or a person has to recover."""
    LOOK_AGAIN = "LOOK_AGAIN"
    """What has to be known is not: observe again soon, touch nothing."""
    CLAIM = "CLAIM"
    """Start the operation."""
    RESUME = "RESUME"
    """The operation is claimed and not complete: run it (again)."""
    FAIL = "FAIL"
    """The operation ends in ERROR: it took longer than its timeout, or the home is not what it should be."""
    PAUSE = "PAUSE"
    """Its container keeps ending: it is started again, but not yet."""
    GONE = "GONE"
    """Deleted, nothing is left."""


@dataclass(frozen=True, slots=True)
class Decision:
    action: Action
    operation: Operation = Operation.NONE
    """What is claimed, resumed or failed."""
    completed: Operation = Operation.NONE
    """The operation that this observation showed to be complete."""
    reason: ErrorReason | None = None
    """Why it failed."""
    pause: Pause | None = None
    """Of PAUSE: until when."""


START = Decision(Action.CLAIM, Operation.STARTING)
"""Of a workspace at rest: as the next step of a longer way, something is completed with it."""


def decide(
    ws: Workspace,
    judgement: Judgement,
    seen: Observation,
    now: datetime,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
    *,
    attempted: bool = True,
) -> Decision:
    """Not `attempted`: the operation under way waits for its turn, and its time has not begun."""
    if judgement.phase is Phase.DELETED:
        return Decision(Action.GONE, completed=ws.operation)
    if judgement.phase is Phase.ERROR:
        if ws.operation is Operation.NONE:
            return Decision(Action.NOTHING)
        return Decision(Action.FAIL, ws.operation, reason=judgement.error_reason)
    if ws.operation is Operation.NONE:
        return _next(ws, judgement, seen)
    if _is_complete(ws, judgement, seen):
        return replace(_next(ws, judgement, seen), completed=ws.operation)
    if attempted and ws.op_started_at is not None and now - ws.op_started_at > timeouts[ws.operation]:
        return Decision(Action.FAIL, ws.operation, reason=ErrorReason.TIMEOUT)
    if not seen.resources.known:
        return Decision(Action.LOOK_AGAIN)
    return Decision(Action.RESUME, ws.operation)


def plan(phase: Phase, desired: DesiredState) -> Operation:
    """The one operation that leads from `phase` towards `desired`; NONE where there is nothing to do."""
    if desired is DesiredState.DELETED:
        return Operation.NONE if phase is Phase.DELETED else Operation.DELETING
    return PLANS.get((phase, desired), Operation.NONE)


def goal(ws: Workspace, phase: Phase) -> DesiredState:
    """Where it is to go now: a home moves to another node by way of its archive, and from there where it is desired."""
    leaves = phase in {Phase.STANDBY, Phase.RUNNING} and ws.move_to is not None and ws.node != ws.move_to
    return DesiredState.ARCHIVED if leaves and ws.desired_state is not DesiredState.DELETED else ws.desired_state


@dataclass(frozen=True, slots=True)
class Claim:
    """The columns that claiming an operation sets."""

    operation: Operation
    op_id: OperationId
    archive_op_id: OperationId | None
    home_ctx: HomeContext


def claim(ws: Workspace, operation: Operation, op_id: OperationId) -> Claim:
    """ARCHIVING takes a new archive_op_id, the operation's own, so that only attempts of one operation share
    an archive: the home may have changed since an earlier one. What may change the home clears it. Only where there is
    no home any more, but the rest of a volume whose removal was begun, does it go on with the archive that there is."""
    archive_op_id = ws.archive_op_id
    home_ctx = ws.home_ctx
    match operation:
        case Operation.ARCHIVING if ws.home_ctx.removing:
            pass
        case Operation.ARCHIVING | Operation.CREATE_EMPTY_ARCHIVE:
            archive_op_id = op_id
        case Operation.RESTORING:
            archive_op_id = None
            home_ctx = HomeContext(restoring=ws.archive_key)
        case Operation.PROVISIONING | Operation.STARTING | Operation.STOPPING:
            archive_op_id = None
    return Claim(operation, op_id, archive_op_id, home_ctx)


def _next(ws: Workspace, judgement: Judgement, seen: Observation) -> Decision:
    operation = plan(judgement.phase, goal(ws, judgement.phase))
    if _holds_container(ws, judgement, seen):
        operation = Operation.STOPPING
    if _holds_remnant(ws, judgement, seen):
        operation = Operation.ARCHIVING
    if operation is Operation.NONE:
        return Decision(Action.NOTHING)
    if not seen.resources.known or (operation is Operation.RESTORING and seen.archive is Presence.UNKNOWN):
        return Decision(Action.LOOK_AGAIN)
    return Decision(Action.CLAIM, operation)


def _holds_container(ws: Workspace, judgement: Judgement, seen: Observation) -> bool:
    """STANDBY is a volume without a container: one that does not answer may still write to the home, and even
    a stopped one keeps the volume from being removed."""
    return (
        judgement.phase is Phase.STANDBY
        and goal(ws, judgement.phase) in {DesiredState.STANDBY, DesiredState.ARCHIVED}
        and seen.resources.container not in {ContainerState.ABSENT, ContainerState.UNKNOWN}
    )


def _holds_remnant(ws: Workspace, judgement: Judgement, seen: Observation) -> bool:
    """ARCHIVED is an archive without a volume: what is left of one is removed."""
    return (
        judgement.phase is Phase.ARCHIVED
        and ws.desired_state is DesiredState.ARCHIVED
        and ws.home_ctx.removing is not None
        and seen.resources.volume is Presence.PRESENT
    )


def _is_complete(ws: Workspace, judgement: Judgement, seen: Observation) -> bool:
    if not seen.resources.known:
        return False
    volume = judgement.conditions[ConditionName.VOLUME_READY].status
    container = judgement.conditions[ConditionName.CONTAINER_READY].status
    match ws.operation:
        case Operation.PROVISIONING:
            return volume
        case Operation.RESTORING:
            marked = ws.archive_key is not None and ws.home_ctx.restore_marker == ws.archive_key
            # Whoever ran meanwhile may have written to it: then it is not what was archived, and is restored again.
            return volume and marked and seen.resources.container is ContainerState.ABSENT
        case Operation.STARTING:
            return container
        case Operation.STOPPING:
            return seen.resources.container is ContainerState.ABSENT
        case Operation.ARCHIVING:
            return seen.resources.volume is Presence.ABSENT and _own_archive_ready(ws, judgement)
        case Operation.CREATE_EMPTY_ARCHIVE:
            return _own_archive_ready(ws, judgement)
        case Operation.DELETING:
            return seen.resources.gone
        case Operation.NONE:
            return False


def _own_archive_ready(ws: Workspace, judgement: Judgement) -> bool:
    """An older archive that is still there completes nothing: it must be the one of this operation."""
    return (
        judgement.conditions[ConditionName.ARCHIVE_READY].status
        and ws.archive_op_id is not None
        and ws.archive_key == archive_key(ws.id, ws.archive_op_id)
    )
