"""When an idle workspace goes down by itself (SPEC 7). Pure."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from domain.model import DesiredState, ErrorReason, Operation, Phase, Workspace

REPORT = timedelta(seconds=2)
"""How long a report of activity may take, also one that Redis does not answer."""


@dataclass(frozen=True, slots=True)
class TtlDefaults:
    standby: timedelta = timedelta(seconds=600)
    archive: timedelta = timedelta(seconds=1800)
    lag: timedelta = timedelta(seconds=30) + REPORT
    """How long activity may be on its way to the database: an active workspace is not taken for an idle one."""


@dataclass(frozen=True, slots=True)
class NextStep:
    """What happens by itself unless somebody does something."""

    desired_state: DesiredState | None
    at: datetime
    error_reason: ErrorReason | None = None
    """In place of a desired_state: the operation under way is given up."""


def next_step(ws: Workspace, defaults: TtlDefaults, seen_at: datetime | None = None) -> NextStep | None:
    """`seen_at` is activity that has not reached the row yet. None: nothing happens by itself."""
    if ws.operation is not Operation.NONE or ws.desired_state.value != ws.phase.value:
        return None
    match ws.phase:
        case Phase.RUNNING:
            ttl = _ttl(ws.standby_ttl_seconds, defaults.standby)
            last = max(moment for moment in (ws.last_access_at, ws.phase_changed_at, seen_at) if moment is not None)
            return NextStep(DesiredState.STANDBY, last + ttl + defaults.lag) if ttl else None
        case Phase.STANDBY:
            ttl = _ttl(ws.archive_ttl_seconds, defaults.archive)
            return NextStep(DesiredState.ARCHIVED, ws.phase_changed_at + ttl) if ttl else None
    return None


def _ttl(own: int | None, default: timedelta) -> timedelta:
    """Zero is never."""
    return default if own is None else timedelta(seconds=own)
