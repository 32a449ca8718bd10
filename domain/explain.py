"""Why a workspace is where it is, what it waits for, and what happens next: in words and in fields. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from domain.errors import MAX_RETRIES
from domain.model import ConditionName, DesiredState, ErrorReason, Operation, Phase, Workspace
from domain.plan import plan
from domain.ttl import NextStep, TtlDefaults, next_step


@dataclass(frozen=True, slots=True)
class LastActivity:
    at: datetime
    kind: str | None = None
    """What was seen: `http`, `ws-in`, `ws-out`; None where only the time is known."""


@dataclass(frozen=True, slots=True)
class Explanation:
    because: str
    """Why it is in this phase."""
    waiting_for: str | None
    what_to_do: str | None
    """What a person can do about it."""
    next_step: NextStep | None
    last_activity: LastActivity | None


def explain(ws: Workspace, defaults: TtlDefaults, activity: LastActivity | None = None) -> Explanation:
    seen = activity.at if activity else None
    return Explanation(
        because=_because(ws),
        waiting_for=_waiting_for(ws),
        what_to_do=_what_to_do(ws),
        next_step=next_step(ws, defaults, seen),
        last_activity=_latest(ws, activity),
    )


_PHASES: Mapping[Phase, str] = MappingProxyType(
    {
        Phase.PENDING: "It was created and has no volume yet.",
        Phase.ARCHIVED: "Its home is in the object storage; no volume and no container are kept.",
        Phase.STANDBY: "Its volume is there and no container runs on it.",
        Phase.RUNNING: "Its container runs on its volume and answers.",
        Phase.DELETING: "It is being deleted: container and volume are removed.",
        Phase.DELETED: "It is deleted.",
    }
)

_ERRORS: Mapping[ErrorReason, tuple[str, str]] = MappingProxyType(
    {
        ErrorReason.TIMEOUT: (
            "The operation took longer than its timeout.",
            "Look into the operation log for what it was doing; then recover to try again.",
        ),
        ErrorReason.RETRY_EXCEEDED: (
            "The operation failed three times with an error of no known kind.",
            "The operation log has the last message; recover to try again.",
        ),
        ErrorReason.ACTION_FAILED: (
            "The engine or the store refused, three times.",
            "The operation log has its answer; mend what it says, then recover.",
        ),
        ErrorReason.UNREACHABLE: (
            "Docker, the object storage or the node could not be reached, three times.",
            "Check that it is up (codehub doctor); then recover.",
        ),
        ErrorReason.DATA_LOST: (
            "The home vanished: its volume was removed by somebody else, or its archive is gone.",
            "Bring it back if you can. Recover accepts the loss: it goes on with the last archive, or with nothing.",
        ),
        ErrorReason.IMAGE_PULL_FAILED: (
            "The image can't be had: the registry does not know it, or refuses it.",
            "Make the image available under this name; then recover.",
        ),
        ErrorReason.CONTAINER_WITHOUT_VOLUME: (
            "A container runs without its volume.",
            "Stop that container by hand; then recover.",
        ),
        ErrorReason.ARCHIVE_CORRUPTED: (
            "The archive's bytes are not those that were stored. The archive was kept, nothing was restored from it.",
            "Bring back the object from a backup of the store; then recover.",
        ),
    }
)

_OPERATIONS: Mapping[Operation, str] = MappingProxyType(
    {
        Operation.PROVISIONING: "an empty volume is being made",
        Operation.RESTORING: "the home is being restored from its archive",
        Operation.STARTING: "the container is being started, until its port answers",
        Operation.STOPPING: "the container is being stopped and removed",
        Operation.ARCHIVING: "the home is being archived; the volume goes once the stored copy is verified",
        Operation.CREATE_EMPTY_ARCHIVE: "an empty archive is being stored",
        Operation.DELETING: "container and volume are being removed",
    }
)


def _because(ws: Workspace) -> str:
    if ws.phase is Phase.ERROR:
        return _ERRORS[ws.error_reason][0] if ws.error_reason else "A person recovered it; it is about to be looked at."
    reason = ws.conditions.get(ConditionName.VOLUME_READY)
    if ws.phase is Phase.ARCHIVED and reason and reason.reason == "RestoreIncomplete":
        return "Its home is in the object storage; a volume that is being filled from it is not a home yet."
    return _PHASES[ws.phase]


def _waiting_for(ws: Workspace) -> str | None:
    if ws.operation is not Operation.NONE:
        failed = f" (attempt {ws.error_count + 1} of {MAX_RETRIES}, the last one failed)" if ws.error_count else ""
        return f"{ws.operation}: {_OPERATIONS[ws.operation]}{failed}."
    if ws.phase is Phase.ERROR and ws.desired_state is not DesiredState.DELETED:
        return "A person: nothing happens by itself in ERROR." if ws.error_reason else "Its workflow."
    coming = plan(ws.phase, ws.desired_state)
    if coming is Operation.NONE:
        return None
    return f"{coming} to begin. If it does not within seconds, Docker or the object storage does not answer."


def _what_to_do(ws: Workspace) -> str | None:
    if ws.phase is Phase.ERROR and ws.error_reason:
        return _ERRORS[ws.error_reason][1]
    return None


def _latest(ws: Workspace, activity: LastActivity | None) -> LastActivity | None:
    known = LastActivity(ws.last_access_at) if ws.last_access_at else None
    if activity and (known is None or activity.at >= known.at):
        return activity
    return known
