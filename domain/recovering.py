"""What recovering from a loss goes on with, and what it gives up: told to whoever is asked to accept it. Pure."""

from dataclasses import dataclass
from datetime import UTC, datetime

from domain.model import ConditionName, ErrorReason, Phase, Workspace
from domain.naming import volume_name

ACCEPTS_LOSS = frozenset({ErrorReason.DATA_LOST, ErrorReason.CONTAINER_WITHOUT_VOLUME})


@dataclass(frozen=True, slots=True)
class Recovering:
    goes_on: str
    """With what. True also in the moment before a volume that was put back is seen."""
    gives_up: str | None
    """None: nothing that is known of."""


def recovering(ws: Workspace, archived_at: datetime | None = None) -> Recovering | None:
    """`archived_at`: of when its archive is, where that is known. None: recovering accepts no loss."""
    if ws.phase is not Phase.ERROR or ws.error_reason not in ACCEPTS_LOSS or ws.deleted_at is not None:
        return None
    if ws.condition(ConditionName.VOLUME_READY):
        return Recovering("Its volume is there again: it goes on with what is in it by then.", None)
    unless = "unless its volume is put back first"
    inside = ", and what is in the container" * (ws.error_reason is ErrorReason.CONTAINER_WITHOUT_VOLUME)
    if ws.archive_key is None:
        return Recovering(f"It goes on with an empty home, {unless}.", f"Everything that was in its home{inside}.")
    when = f", of {archived_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if archived_at else ""
    lost = f"Everything since its last archive{when}{inside}."
    if archive_is_gone(ws):
        return Recovering("Its archive is gone too: until that is back, recovering leads to the same error.", lost)
    return Recovering(f"It goes on with its last archive{when}, {unless}.", lost)


def vanished(ws: Workspace) -> str:
    """What DataLost is about, as far as the row knows it."""
    volume = ws.conditions.get(ConditionName.VOLUME_READY)
    if volume is None or ws.node is None:
        what = f"its archive {ws.archive_key}" if archive_is_gone(ws) else "its volume or its archive"
        return f"The home vanished: {what} is gone, and codehub did not remove it."
    named = f"its volume {volume_name(ws.id)} on node {ws.node}"
    if volume.status:
        return f"The home had vanished: {named} was gone, and codehub had not removed it. It is there again."
    also = f" Its archive {ws.archive_key} is gone too." if archive_is_gone(ws) else ""
    return f"The home vanished: {named} is gone, and codehub did not remove it.{also}"


def archive_is_gone(ws: Workspace) -> bool:
    """By the store's own word, when it was last asked."""
    archive = ws.conditions.get(ConditionName.ARCHIVE_READY)
    return ws.archive_key is not None and archive is not None and archive.reason == "ArchiveAbsent"
