"""Clocks that go differently: times of one machine are compared with times of another."""

from datetime import datetime

from starter.commands.checks.finding import Finding, bad, ok, warning

NOTICEABLE_SECONDS = 2.0
HARMFUL_SECONDS = 30.0
_ADVICE = "Let both machines follow the same time server (NTP)."


def compared(theirs: datetime, ours: datetime) -> Finding:
    """`ours` is when theirs was read, halfway between question and answer."""
    ahead = (theirs - ours).total_seconds()
    told = f"its clock is {abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'} this machine's"
    if abs(ahead) >= HARMFUL_SECONDS:
        return bad(f"{told}: workspaces go to sleep at the wrong time", _ADVICE)
    if abs(ahead) >= NOTICEABLE_SECONDS:
        return warning(told, _ADVICE)
    return ok("its clock agrees with this machine's")
