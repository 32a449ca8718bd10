"""Why a workspace is where it is, what it waits for, and what happens next: in words and in fields. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from domain.errors import MAX_RETRIES
from domain.judge import waits_for_node
from domain.model import ConditionName, DesiredState, ErrorReason, Operation, Phase, Workspace
from domain.pacing import is_paused
from domain.placement import NO_PLACE
from domain.plan import DEFAULT_TIMEOUTS, Timeouts, goal, plan
from domain.recovering import Recovering, recovering, vanished
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
    recovering: Recovering | None
    """What a person has to know who recovers it, where that accepts a loss."""
    next_step: NextStep | None
    last_activity: LastActivity | None


def explain(
    ws: Workspace,
    defaults: TtlDefaults,
    activity: LastActivity | None = None,
    max_retries: int = MAX_RETRIES,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
    *,
    waits: bool = False,
    archived_at: datetime | None = None,
) -> Explanation:
    """`waits`: its operation waits for its turn, and nobody has taken it up yet. `archived_at`: see `recovering`."""
    seen = activity.at if activity else None
    accepts = recovering(ws, archived_at)
    return Explanation(
        because=_because(ws),
        waiting_for=_turn(ws) if waits else _waiting_for(ws, max_retries),
        what_to_do=_what_to_do(ws, accepts),
        recovering=accepts,
        next_step=None if waits else _timeout(ws, timeouts) or next_step(ws, defaults, seen),
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
            "Every attempt at the operation failed with an error of no known kind.",
            "The operation log has the last message; recover to try again.",
        ),
        ErrorReason.ACTION_FAILED: (
            "The engine or the store refused the operation, or the home holds what no archive could give back.",
            "The operation log says which, and why; mend that, then recover.",
        ),
        ErrorReason.UNREACHABLE: (
            "Docker, a registry, the object storage or the node could not be reached at any attempt.",
            "Check that it is up (codehub doctor); then recover.",
        ),
        ErrorReason.DATA_LOST: (
            "The home vanished, and codehub did not remove it.",
            "Bring it back if you can, before you recover it.",
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
    if waits_for_node(ws):
        return f"Its node {ws.node} has not been heard of. Its home is there, and nothing was done to it."
    if ws.phase is Phase.ERROR and ws.error_reason is ErrorReason.DATA_LOST:
        return vanished(ws)
    if ws.phase is Phase.ERROR:
        return _ERRORS[ws.error_reason][0] if ws.error_reason else "A person recovered it; it is about to be looked at."
    reason = ws.conditions.get(ConditionName.VOLUME_READY)
    if ws.phase is Phase.ARCHIVED and reason and reason.reason == "RestoreIncomplete":
        return "Its home is in the object storage; a volume that is being filled from it is not a home yet."
    if ws.phase is Phase.ARCHIVED and reason and reason.reason == "RemovalIncomplete":
        return "Its home is in the object storage; what is left of its volume is not a home any more, and goes."
    return _PHASES[ws.phase]


def _turn(ws: Workspace) -> str:
    where = f"at node {ws.node}" if ws.node else "at a worker"
    return f"{ws.operation}: it waits for its turn {where}, behind what was asked for earlier."


def _waiting_for(ws: Workspace, max_retries: int) -> str | None:
    if ws.operation is not Operation.NONE:
        return f"{ws.operation}: {_OPERATIONS[ws.operation]}{_attempts(ws.error_count, max_retries)}."
    if waits_for_node(ws):
        return f"Node {ws.node}: it goes on by itself when the node returns."
    volume = ws.conditions.get(ConditionName.VOLUME_READY)
    if volume is not None and volume.reason == NO_PLACE:
        return f"A place on a node: {volume.message}."
    if ws.phase is Phase.ERROR and ws.desired_state is not DesiredState.DELETED:
        return "A person: nothing happens by itself in ERROR." if ws.error_reason else "Its workflow."
    if is_paused(ws):
        return f"Its next start: {ws.conditions[ConditionName.CONTAINER_READY].message}."
    coming = plan(ws.phase, goal(ws, ws.phase))
    if coming is Operation.NONE:
        return None
    return f"{coming} to begin. If it does not within seconds, Docker or the object storage does not answer."


def _attempts(failed: int, max_retries: int) -> str:
    if failed >= max_retries:
        return " (the last attempt failed)"
    return f" (attempt {failed + 1} of {max_retries}, the last one failed)" if failed else ""


def _what_to_do(ws: Workspace, accepts: Recovering | None) -> str | None:
    if waits_for_node(ws):
        return "Bring the host and its worker back (codehub node ls). If it is gone for good: codehub node rm."
    if is_paused(ws):
        return "See why it ends: it may run out of memory. To try at once: stop it, then start it."
    if ws.phase is not Phase.ERROR or not ws.error_reason:
        return None
    advice = _ERRORS[ws.error_reason][1]
    if accepts is None:
        return advice
    if accepts.gives_up is not None:
        return f"{advice} Recover accepts the loss. {accepts.goes_on}"
    is_back = ws.error_reason is ErrorReason.DATA_LOST
    return f"{'See that all of it is there; then recover.' if is_back else advice} {accepts.goes_on}"


def _timeout(ws: Workspace, timeouts: Timeouts) -> NextStep | None:
    """An operation comes to an end one way or the other."""
    if ws.operation is Operation.NONE or ws.op_started_at is None:
        return None
    return NextStep(None, ws.op_started_at + timeouts[ws.operation], ErrorReason.TIMEOUT)


def _latest(ws: Workspace, activity: LastActivity | None) -> LastActivity | None:
    known = LastActivity(ws.last_access_at) if ws.last_access_at else None
    if activity and (known is None or activity.at >= known.at):
        return activity
    return known
