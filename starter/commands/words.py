"""Times, sizes and durations as people say them, and as they type them."""

import re
from datetime import datetime, timedelta

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_MINUTE, _MINUTE_AND_A_HALF = timedelta(minutes=1), timedelta(seconds=90)
_TYPED = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[smhd]?)", re.IGNORECASE)


def moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def ago(then: datetime | None, now: datetime) -> str:
    if then is None:
        return "never"
    return "just now" if now - then < timedelta(seconds=5) else f"{span(now - then)} ago"


def ahead(then: datetime, now: datetime) -> str:
    """Whole minutes that are left: what sleeps after ten minutes never says eleven for the seconds that are added."""
    left = then - now
    if left < timedelta(seconds=5):
        return "any moment"
    return f"in {span(left if left < _MINUTE_AND_A_HALF else left // _MINUTE * _MINUTE)}"


def span(length: timedelta) -> str:
    """One unit, or two where one would be too rough."""
    seconds = max(0, round(length.total_seconds()))
    if seconds < 90:
        return f"{seconds} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} min"
    if seconds < 36 * 3600:
        hours, minutes = divmod(round(seconds / 60), 60)
        return f"{hours} h {minutes} min" if hours < 6 and minutes else f"{round(seconds / 3600)} h"
    return f"{round(seconds / 86400)} days"


def took(seconds: float) -> str:
    """How long something took."""
    return f"{seconds:.1f} s" if seconds < 60 else span(timedelta(seconds=seconds))


def size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def parse_seconds(typed: str) -> float:
    """`90`, `90s`, `15m`, `2h` or `7d`; ValueError for anything else."""
    found = _TYPED.fullmatch(typed.strip())
    if not found:
        raise ValueError(f"{typed!r} is no duration: 90s, 15m, 2h or 7d would be")
    return float(found["number"]) * _UNITS[found["unit"].lower() or "s"]


def parse_ttl(typed: str) -> int | None:
    """As `parse_seconds`; also `never`, and `default` for what the installation says."""
    match typed.strip().lower():
        case "never":
            return 0
        case "default":
            return None
    return round(parse_seconds(typed))
