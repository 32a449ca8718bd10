"""Judge: from the row and what was just seen to conditions and phase (SPEC 4). Pure."""

from dataclasses import dataclass
from datetime import datetime

from domain.model import (
    Condition,
    ConditionName,
    Conditions,
    ErrorReason,
    Operation,
    Phase,
    Workspace,
)
from domain.naming import archive_key
from domain.observation import ContainerState, Observation, Presence, Resources

# ARCHIVING is not among them: until its archive_key is saved it removes nothing (see _archived_since).
REMOVES_VOLUME = frozenset({Operation.DELETING, Operation.RESTORING})


@dataclass(frozen=True, slots=True)
class Judgement:
    conditions: Conditions
    phase: Phase
    error_reason: ErrorReason | None


def judge(ws: Workspace, seen: Observation, now: datetime) -> Judgement:
    conditions = {
        ConditionName.VOLUME_READY: _volume_ready(ws, seen, now),
        ConditionName.ARCHIVE_READY: _archive_ready(ws, seen, now),
        ConditionName.CONTAINER_READY: _container_ready(ws, seen, now),
    }
    broken = _broken(ws, seen, conditions)
    conditions[ConditionName.HEALTHY] = _healthy(ws, broken, now)
    # A loss is said even where something else went wrong before: recover must not accept it unseen.
    error_reason = broken if broken is ErrorReason.DATA_LOST else ws.error_reason or broken
    return Judgement(conditions, _phase(ws, seen, conditions, error_reason), error_reason)


def needs_archive(ws: Workspace, resources: Resources) -> bool:
    """Whether the store has to be asked: while a volume holds the home, its archive decides nothing."""
    if ws.archive_key is None:
        return False
    holds_home = resources.volume is Presence.PRESENT and not ws.home_ctx.partial
    return not holds_home or ws.operation in {Operation.ARCHIVING, Operation.CREATE_EMPTY_ARCHIVE}


def who_kept_silent(ws: Workspace, seen: Observation) -> str | None:
    """Of those who had to be asked."""
    if not seen.resources.known:
        return "the Docker engine"
    return "the object store" if seen.archive is Presence.UNKNOWN and needs_archive(ws, seen.resources) else None


def _volume_ready(ws: Workspace, seen: Observation, now: datetime) -> Condition:
    name = ConditionName.VOLUME_READY
    match seen.resources.volume:
        case Presence.UNKNOWN:
            return _kept(ws, name, now)
        case Presence.ABSENT:
            return _moved(ws, name, False, "VolumeAbsent", "", now)
        case Presence.PRESENT if ws.home_ctx.restoring:
            return _moved(ws, name, False, "RestoreIncomplete", "the volume is being filled from the archive", now)
        case Presence.PRESENT if ws.home_ctx.removing:
            return _moved(ws, name, False, "RemovalIncomplete", "the archive holds the home, the volume goes", now)
        case Presence.PRESENT:
            return _moved(ws, name, True, "VolumePresent", "", now)


def _archive_ready(ws: Workspace, seen: Observation, now: datetime) -> Condition:
    name = ConditionName.ARCHIVE_READY
    if ws.archive_key is None:
        return _moved(ws, name, False, "NoArchive", "", now)
    match seen.archive:
        case Presence.PRESENT:
            return _moved(ws, name, True, "ArchivePresent", ws.archive_key, now)
        case Presence.ABSENT:
            return _moved(ws, name, False, "ArchiveAbsent", ws.archive_key, now)
        case Presence.UNKNOWN:
            former = ws.conditions.get(name)
            if former and former.message == ws.archive_key:
                return former
            return _moved(ws, name, False, "NotObserved", ws.archive_key, now)


def _container_ready(ws: Workspace, seen: Observation, now: datetime) -> Condition:
    name = ConditionName.CONTAINER_READY
    match seen.resources.container:
        case ContainerState.UNKNOWN:
            return _kept(ws, name, now)
        case ContainerState.READY:
            return _moved(ws, name, True, "ContainerReady", "", now)
        case ContainerState.UNREADY:
            return _moved(ws, name, False, "PortNotAnswering", "the container runs, its port does not answer", now)
        case ContainerState.STOPPED:
            return _moved(ws, name, False, "ContainerStopped", "", now)
        case ContainerState.ABSENT:
            return _moved(ws, name, False, "ContainerAbsent", "", now)


def _broken(ws: Workspace, seen: Observation, conditions: dict[ConditionName, Condition]) -> ErrorReason | None:
    if seen.node_lost:
        return ErrorReason.UNREACHABLE
    volume = conditions[ConditionName.VOLUME_READY].status
    if _volume_vanished(ws, seen) or _nothing_left(ws, seen):
        return ErrorReason.DATA_LOST
    if conditions[ConditionName.CONTAINER_READY].status and not volume:
        return ErrorReason.CONTAINER_WITHOUT_VOLUME
    return None


def _volume_vanished(ws: Workspace, seen: Observation) -> bool:
    """A volume that vanished is a loss, not a state, unless we removed it ourselves."""
    return (
        ws.condition(ConditionName.VOLUME_READY)
        and seen.resources.volume is Presence.ABSENT
        and ws.operation not in REMOVES_VOLUME
        and not _archived_since(ws)
    )


def _archived_since(ws: Workspace) -> bool:
    """The last ARCHIVING saved its archive_key, and nothing was claimed since (a claim clears archive_op_id):
    the archive holds all that the volume held, whoever removed it then."""
    return ws.archive_op_id is not None and ws.archive_key == archive_key(ws.id, ws.archive_op_id)


def _nothing_left(ws: Workspace, seen: Observation) -> bool:
    """An archive was promised, and the store itself says that it is not there. A part of a home is no home."""
    volume = seen.resources.volume
    no_home = volume is Presence.ABSENT or (volume is Presence.PRESENT and ws.home_ctx.partial)
    return ws.archive_key is not None and seen.archive is Presence.ABSENT and no_home


def _phase(
    ws: Workspace,
    seen: Observation,
    conditions: dict[ConditionName, Condition],
    error_reason: ErrorReason | None,
) -> Phase:
    if ws.deleted_at is not None:
        if seen.resources.gone:
            return Phase.DELETED
        return Phase.ERROR if seen.node_lost or _deletion_failed(ws) else Phase.DELETING
    if error_reason is not None:
        return Phase.ERROR
    if conditions[ConditionName.VOLUME_READY].status:
        return Phase.RUNNING if conditions[ConditionName.CONTAINER_READY].status else Phase.STANDBY
    # archive_key is saved only after the store's copy was verified: until the store says otherwise, it holds.
    return Phase.PENDING if ws.archive_key is None else Phase.ARCHIVED


def _deletion_failed(ws: Workspace) -> bool:
    """A deletion that failed for good waits for a person, who recovers it or asks for it again."""
    return ws.error_reason is not None and ws.deleted_at is not None and ws.deleted_at <= ws.phase_changed_at


def _healthy(ws: Workspace, broken: ErrorReason | None, now: datetime) -> Condition:
    name = ConditionName.HEALTHY
    if broken is None and waits_for_node(ws):
        # Kept until it is recovered: it tells that nothing but its node is missing.
        return ws.conditions[name]
    if broken is None:
        return _moved(ws, name, True, "InvariantsHold", "", now)
    return _moved(ws, name, False, broken, _BROKEN_TEXT[broken], now)


def waits_for_node(ws: Workspace) -> bool:
    """In ERROR for no other reason than that its node was not heard of: it is recovered when the node returns."""
    healthy = ws.conditions.get(ConditionName.HEALTHY)
    return (
        ws.error_reason is ErrorReason.UNREACHABLE
        and healthy is not None
        and not healthy.status
        and healthy.reason == ErrorReason.UNREACHABLE
    )


def _kept(ws: Workspace, name: ConditionName, now: datetime) -> Condition:
    former = ws.conditions.get(name)
    return former or Condition(status=False, reason="NotObserved", message="", last_transition_time=now)


def _moved(ws: Workspace, name: ConditionName, status: bool, reason: str, message: str, now: datetime) -> Condition:
    former = ws.conditions.get(name)
    since = former.last_transition_time if former and former.status == status else now
    return Condition(status=status, reason=reason, message=message, last_transition_time=since)


_BROKEN_TEXT = {
    ErrorReason.DATA_LOST: "the home is neither in a volume nor in an archive that holds its last state",
    ErrorReason.CONTAINER_WITHOUT_VOLUME: "a container runs without its volume",
    ErrorReason.UNREACHABLE: "its node has not been heard of; the home is there, and is used again when it returns",
}
