"""What reconciles and operations tell the metrics. Counted by whoever saved, so each thing once."""

from datetime import datetime

from adapters.telemetry.metrics import OPERATION, TIME_IN_PHASE, WAKE_LATENCY
from domain.model import Operation, Workspace
from domain.pacing import is_paused
from domain.plan import Action, Decision


def measure(before: Workspace, after: Workspace, decision: Decision, now: datetime) -> None:
    """After the save of `after` in place of `before`."""
    if before.phase is not after.phase:
        TIME_IN_PHASE.labels(before.phase).observe(_seconds(before.phase_changed_at, now))
    if before.op_id is not None and before.op_id != after.op_id:
        began = before.op_started_at or now
        outcome = "failed" if after.error_reason is not None else "succeeded"
        OPERATION.labels(before.operation, outcome).observe(_seconds(began, now))
    # Woken to go somewhere: not by drift, also where that had to wait, and not as the next step of a longer way.
    is_woken = before.operation is Operation.NONE and before.phase.value != before.desired_state.value
    if decision.action is Action.CLAIM and is_woken and not is_paused(before) and before.error_reason is None:
        WAKE_LATENCY.observe(_seconds(before.updated_at, now))


def measure_failure(operation: str, seconds: float) -> None:
    OPERATION.labels(operation, "failed").observe(max(0.0, seconds))


def _seconds(since: datetime, now: datetime) -> float:
    return max(0.0, (now - since).total_seconds())
