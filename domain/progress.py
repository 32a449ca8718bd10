"""How far an operation's bytes have come, in the one form in which everybody is told: API, live events, heartbeats.

Pure: clocks are parameters.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum

PACE_SECONDS = 10.0
"""The pace is that of so many last seconds: a network that has become slow shows, and so does one that stands still."""
_LEAST_SECONDS = 0.5
"""A pace over less than this says nothing."""
STALE_SECONDS = 10.0
"""What was told longer ago has no pace any more: whoever moved the bytes may be gone."""


class Stage(StrEnum):
    TRANSFERRING = "TRANSFERRING"
    """Between the home and the store, either way."""
    VERIFYING = "VERIFYING"
    """The store's copy is read back and compared; counted in the bytes of the home."""


@dataclass(frozen=True, slots=True)
class Moved:
    stage: Stage
    bytes_done: int
    bytes_total: int | None
    bytes_per_second: int | None
    eta_seconds: float | None
    attempt: int


def as_told(
    stage: Stage | None,
    done: int,
    total: int | None,
    rate: float | None,
    attempt: int,
    age: float = 0.0,
) -> Moved:
    """`rate` as it was `age` seconds ago. No stage: a version that knew of none has told it."""
    # Rounded first: who asks is told what events told, to the digit.
    pace = None if rate is None or age > STALE_SECONDS else round(rate)
    left = max(0, total - done) / pace if total is not None and pace else None
    return Moved(
        stage=stage or Stage.TRANSFERRING,
        bytes_done=done,
        bytes_total=total,
        bytes_per_second=pace,
        eta_seconds=None if left is None else round(left, 1),
        attempt=attempt,
    )


@dataclass(slots=True)
class Pace:
    """Of one stage, from the looks that were taken at it."""

    _looks: deque[tuple[float, int]] = field(default_factory=deque)

    def look(self, now: float, done: int) -> float | None:
        """Bytes per second, where that can be said."""
        looks = self._looks
        if len(looks) == 1 and looks[0][1] == done:
            # What comes before the first byte (the home is looked through) is no part of the pace.
            looks.clear()
        looks.append((now, done))
        while len(looks) > 2 and looks[1][0] <= now - PACE_SECONDS:
            looks.popleft()
        since, already = looks[0]
        return (done - already) / (now - since) if now - since >= _LEAST_SECONDS else None
