"""What the final failure of an operation's activity means (SPEC 6)."""

from dataclasses import dataclass
from datetime import timedelta

from temporalio import exceptions
from temporalio.exceptions import ActivityError, TimeoutType

from domain.model import ErrorReason
from workflows.messages import NO_PLACE


@dataclass(frozen=True, slots=True)
class Failure:
    reason: ErrorReason
    message: str
    worker_lost: bool = False
    """No worker was there to do the work: no error of the workspace."""
    not_taken: bool = False
    """No worker of the node took it: the node is lost, or has its hands full. It is asked again."""


AWAY = timedelta(seconds=30)
"""A timeout that is noticed this much too late was not watched: worker or server were away."""


def failure_of(error: ActivityError, timeout: timedelta, overdue: timedelta) -> Failure:
    """`overdue`: how long after its time was up it is heard of."""
    if any(isinstance(cause, exceptions.ApplicationError) and cause.type == NO_PLACE for cause in _causes(error)):
        return Failure(ErrorReason.UNREACHABLE, "no worker had a place for the operation", not_taken=True)
    match error.cause:
        case exceptions.ApplicationError() as cause:
            return Failure(_reason(cause.type), cause.message)
        case exceptions.TimeoutError(type=TimeoutType.SCHEDULE_TO_START):
            text = "no worker of the workspace's node took the operation"
            return Failure(ErrorReason.UNREACHABLE, text, not_taken=True)
        case exceptions.TimeoutError() as cause:
            text = f"the operation took longer than its timeout of {timeout.total_seconds():g} s"
            lost = _lost_heartbeat(cause) or _lost_heartbeat(cause.cause) or overdue > AWAY
            return Failure(ErrorReason.TIMEOUT, text, worker_lost=lost)
    return Failure(ErrorReason.RETRY_EXCEEDED, str(error.cause or error))


def _causes(error: ActivityError) -> list[BaseException | None]:
    """Of a timeout that ended the retries, also what the last one failed with."""
    return [error.cause, error.cause.__cause__ if error.cause else None]


def _lost_heartbeat(cause: BaseException | None) -> bool:
    return isinstance(cause, exceptions.TimeoutError) and cause.type is TimeoutType.HEARTBEAT


def _reason(name: str | None) -> ErrorReason:
    return ErrorReason(name) if name in set(ErrorReason) else ErrorReason.RETRY_EXCEEDED
