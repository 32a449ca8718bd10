from typing import Any

import pytest

from starter.commands.goal import Goal, Verdict

T1, T2 = "2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z"


def row(
    phase: str, desired: str, operation: str = "NONE", error: str | None = None, changed: str = T1
) -> dict[str, Any]:
    return {
        "phase": phase,
        "desired_state": desired,
        "operation": operation,
        "error_reason": error,
        "phase_changed_at": changed,
    }


@pytest.mark.parametrize(
    ("now", "verdict"),
    [
        (row("STANDBY", "RUNNING"), Verdict.WAITING),
        (row("STANDBY", "RUNNING", "STARTING"), Verdict.WAITING),
        (row("RUNNING", "RUNNING", "STARTING"), Verdict.WAITING),
        (row("RUNNING", "RUNNING"), Verdict.REACHED),
        (row("RUNNING", "STANDBY"), Verdict.OVERTAKEN),
        (row("ERROR", "RUNNING", error="Timeout"), Verdict.IN_ERROR),
        (row("DELETING", "DELETED", "DELETING"), Verdict.OVERTAKEN),
        (None, Verdict.GONE),
    ],
)
def test_on_the_way_to_running(now: dict[str, Any] | None, verdict: Verdict) -> None:
    assert Goal.of("RUNNING", row("STANDBY", "RUNNING")).judge(now) is verdict


@pytest.mark.parametrize(
    ("now", "verdict"),
    [
        (row("ERROR", "DELETED", error="Timeout"), Verdict.WAITING),
        (row("DELETING", "DELETED", "DELETING", changed=T2), Verdict.WAITING),
        (row("ERROR", "DELETED", error="Timeout", changed=T2), Verdict.IN_ERROR),
        (None, Verdict.REACHED),
    ],
)
def test_deleting_what_is_in_error(now: dict[str, Any] | None, verdict: Verdict) -> None:
    """The error that it already had is no failure of the deletion; the same one again is."""
    assert Goal.of("DELETED", row("ERROR", "RUNNING", error="Timeout")).judge(now) is verdict


@pytest.mark.parametrize(
    ("now", "verdict"),
    [
        (row("ERROR", "RUNNING"), Verdict.WAITING),
        (row("ERROR", "RUNNING", error="DataLost"), Verdict.IN_ERROR),
        (row("RUNNING", "RUNNING", changed=T2), Verdict.REACHED),
    ],
)
def test_recovering(now: dict[str, Any], verdict: Verdict) -> None:
    """A recovered workspace is in ERROR without a reason until it is looked at."""
    assert Goal.of("RUNNING", row("ERROR", "RUNNING")).judge(now) is verdict
