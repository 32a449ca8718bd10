"""When a container that keeps ending is started again. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from domain.model import ConditionName, DesiredState, Operation, Phase, Workspace

KEEPS_ENDING = "KeepsEnding"
"""Why `infra.container_ready` is False while the next start waits."""
AT_ONCE = 2
"""Restarts in a row that wait for nothing."""
SHORTEST, LONGEST = timedelta(seconds=1), timedelta(minutes=10)
HELD = 2 * LONGEST
"""A start that was up for so long begins a new row. More than a pause: so far apart are those that end at once."""
MOST = 13
"""Starts in a row that make a difference: from there on the pause is the longest."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A line of the operation log: an operation that is over."""

    started: bool
    """It was a STARTING, and the container answered."""
    began_at: datetime
    ended_at: datetime


@dataclass(frozen=True, slots=True)
class Pause:
    starts: int
    """In a row, and each of these containers ended by itself."""
    until: datetime

    def in_words(self) -> str:
        often = f"{self.starts} times" if self.starts < MOST else f"at least {MOST} times"
        at = f"{self.until.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
        return f"the container ended {often} in a row, and is started again at {at}"


def pause_before_start(latest: Sequence[Ended], now: datetime) -> Pause | None:
    """`latest` are the operations since a person last had a say in it, latest first. None: it is started now.

    The pause counts from the last start: a container that was up for longer has waited already.
    """
    starts = _in_a_row(latest, now)
    if starts <= AT_ONCE:
        return None
    length = min(SHORTEST * 2 ** (starts - AT_ONCE - 1), LONGEST)
    # A clock that was set back keeps nobody waiting for longer than that.
    until = min(latest[0].ended_at, now) + length
    return Pause(starts, until) if until > now else None


def awaits_start(ws: Workspace) -> bool:
    """Whether a start comes next, as far as the row knows."""
    on_its_way = ws.phase is Phase.STANDBY and ws.desired_state is DesiredState.RUNNING
    return on_its_way and ws.operation is Operation.NONE


def is_paused(ws: Workspace) -> bool:
    """Whether its next start waits, as far as the row knows."""
    container = ws.conditions.get(ConditionName.CONTAINER_READY)
    return awaits_start(ws) and container is not None and container.reason == KEEPS_ENDING


def _in_a_row(latest: Sequence[Ended], now: datetime) -> int:
    count, following = 0, now
    for one in latest:
        if not one.started or following - one.ended_at > HELD:
            break
        count, following = count + 1, one.began_at
    return count
