"""Every operation as an activity: act, observe what it did, save, return what comes next.

An attempt that fails counts itself in error_count before it raises (SPEC 6). An attempt that dies with its worker
counts nothing: Temporal notices the missing heartbeat and runs another. What the workspace itself said of it goes into
the operation log, which its owner reads, and neither to Temporal nor into the worker's log.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta

import structlog
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.attempt import Actuator, Attempt, Superseded
from activities.places import NoPlace, Places
from activities.pulse import Pulse
from activities.reconcile import Reconciler
from adapters.postgres.database import DatabaseUnavailable
from adapters.postgres.workspaces import Begun
from adapters.telemetry.metrics import ATTEMPT_FAILURES
from domain.errors import (
    ActionFailed,
    ContainerWithoutVolume,
    DataLost,
    OperationTimeout,
    Unreachable,
    WorkspaceError,
    is_terminal,
    outline,
    reason_of,
)
from domain.model import Operation
from workflows.messages import NO_PLACE, OperateInput, Step, StepKind

log = structlog.get_logger()

WORKER_SHUTDOWN = "WorkerShutdown"
_MESSAGE_LIMIT = 2000
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 3.0
_FURTHER = 32 * 1024 * 1024
"""Bytes. Less may be no more than what was read ahead."""
_END_SECONDS = 30.0
_NOTICEABLE = timedelta(seconds=1)
"""What an operation waited before it began. Less is not worth a write."""

_LOOK = Step(StepKind.WAIT, wait_seconds=0)
"""Nothing was done here. What comes next is decided by whoever asked, if they still listen."""

OperationActivity = Callable[[OperateInput], Awaitable[Step]]


@dataclass(frozen=True, slots=True)
class Operator:
    reconciler: Reconciler
    actuators: Mapping[Operation, Actuator]
    backoff: timedelta = timedelta(seconds=1)
    patience: timedelta = timedelta(0)
    """How long an attempt waits for an engine or a store that does not answer before it fails as Unreachable: one
    that is being restarted is no error of the workspace. A transfer that has come further since is given it anew."""
    places: Mapping[Operation, Places] = field(default_factory=dict)
    """Of operations that only so many may be in at once."""

    def activities(self) -> list[OperationActivity]:
        return [self._activity(operation) for operation in self.actuators]

    def _activity(self, operation: Operation) -> OperationActivity:
        @activity.defn(name=operation)
        async def run(request: OperateInput) -> Step:
            return await self.run(operation, request)

        return run

    async def run(self, operation: Operation, request: OperateInput) -> Step:
        places, pulse = self.places.get(operation), Pulse()
        with structlog.contextvars.bound_contextvars(workspace=request.workspace_id, operation_id=request.op_id):
            async with pulse.beating():
                try:
                    # Before the attempt is counted: it has not begun.
                    with places.taken(request.op_id) if places else nullcontext():
                        return await self._attempt(operation, request, pulse)
                except NoPlace as full:
                    delay = timedelta(seconds=full.delay)
                    raise ApplicationError(f"{full}", type=NO_PLACE, next_retry_delay=delay) from None
                except asyncio.CancelledError:
                    if activity.in_activity() and activity.is_worker_shutdown():
                        raise ApplicationError("the worker is shutting down", type=WORKER_SHUTDOWN) from None
                    raise
                except DatabaseUnavailable as error:
                    # The count could not be kept either: Temporal tries again until the operation's timeout.
                    raise ApplicationError(f"{error}", type="DatabaseUnavailable") from error
                except Superseded as error:
                    # Nobody waits for this one's answer: a later attempt is under way.
                    raise ApplicationError(f"{error}", type="Superseded") from None
                except Exception as error:  # noqa: BLE001 - every class of failure is counted
                    ATTEMPT_FAILURES.labels(operation, reason_of(error)).inc()
                    # Without its causes, which Temporal would store, too: they may be in words of the workspace.
                    failure = await self._counted(request, error)
                    if failure.non_retryable and operation is Operation.STARTING:
                        await self._end_what_was_started(request, error)
                    raise failure.with_traceback(error.__traceback__) from None

    async def _attempt(self, operation: Operation, request: OperateInput, pulse: Pulse) -> Step:
        begun = await self.reconciler.store.begin_attempt(request.op_id)
        if begun is None or begun.workspace.op_id != request.op_id or not self.reconciler.serves(begun.workspace):
            return _LOOK
        number = begun.number
        try:
            return await self._in_time(operation, Attempt(begun.workspace, request.op_id, number, pulse), begun)
        except (Superseded, DatabaseUnavailable):
            raise
        except Exception as error:
            # A later attempt cuts off the one before it: what that one then fails with is no error of the workspace.
            if not await self.reconciler.store.is_current(request.op_id, number):
                raise Superseded(f"attempt {number} of {request.op_id} was superseded ({outline(error)})") from error
            raise

    async def _in_time(self, operation: Operation, attempt: Attempt, begun: Begun) -> Step:
        timeout = self.reconciler.timeouts[operation]
        ran = _time_used(begun)
        if begun.ran - ran > _NOTICEABLE:
            await self.reconciler.store.set_clock(attempt.workspace.id, attempt.op_id, ran)
        limit = asyncio.timeout((timeout - ran).total_seconds())
        try:
            async with limit:
                return await self._patiently(operation, attempt)
        except TimeoutError as error:
            if not limit.expired():
                raise
            text = f"the operation took longer than its timeout of {timeout.total_seconds():g} s"
            raise OperationTimeout(text) from error

    async def _patiently(self, operation: Operation, attempt: Attempt) -> Step:
        clock = asyncio.get_running_loop().time
        pause, until, reached = _FIRST_PAUSE, None, attempt.pulse.furthest
        while True:
            try:
                return await self._acted(operation, attempt)
            except Unreachable as error:
                verifying, done = attempt.pulse.furthest
                if (verifying, done) >= (reached[0], reached[1] + _FURTHER):
                    # It got beyond where the last one struck: this is another one, and not the same that goes on.
                    pause, until, reached = _FIRST_PAUSE, None, (verifying, done)
                until = until or clock() + self.patience.total_seconds()
                if clock() + pause > until:
                    raise
                log.warning("attempt_waits", operation=operation, message=outline(error))
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
            attempt = await self._again(attempt)

    async def _acted(self, operation: Operation, attempt: Attempt) -> Step:
        """Act, and see that it is done."""
        await self.actuators[operation](attempt)
        step = await self.reconciler.step(attempt.workspace.id, attempt=attempt)
        if step.kind is StepKind.RUN and step.op_id == attempt.op_id:
            raise ActionFailed(f"{operation} returned, but what was observed does not show it complete")
        return step

    async def _again(self, attempt: Attempt) -> Attempt:
        """The same attempt on the row as it is now, unless a later one has taken over meanwhile."""
        ws = await self.reconciler.store.load(attempt.workspace.id)
        if ws is None or not await self.reconciler.store.is_current(attempt.op_id, attempt.number):
            raise Superseded(f"attempt {attempt.number} of {attempt.op_id} was superseded")
        return replace(attempt, workspace=ws)

    async def _end_what_was_started(self, request: OperateInput, error: Exception) -> None:
        """What runs, and did not become RUNNING, would run on outside of all limits until a sweep ends it; and whoever
        recovers before that would be told that it is RUNNING. Where the home is in doubt it is left: it may be the last
        to hold it."""
        if isinstance(error, DataLost | ContainerWithoutVolume):
            return

        async def fence() -> None:
            ws = await self.reconciler.store.load(request.workspace_id)
            if ws is None or ws.op_id != request.op_id:
                raise Superseded(f"{request.op_id} is over")

        try:
            async with asyncio.timeout(_END_SECONDS):
                await self.reconciler.runtime.stop(request.workspace_id, fence)
        except (WorkspaceError, DatabaseUnavailable, Superseded, TimeoutError) as reason:
            log.warning("container_of_failed_start_stays", error=outline(reason))

    async def _counted(self, request: OperateInput, error: Exception) -> ApplicationError:
        reason = reason_of(error)
        message = _plain(outline(error))
        try:
            count = await self.reconciler.store.count_error(request.workspace_id, request.op_id, _in_full(error))
        except DatabaseUnavailable:
            # What no retry can mend is not tried again for the want of a count.
            final = _is_lasting(error) or is_terminal(reason, 0, self.reconciler.max_retries)
            return ApplicationError(
                message, type=reason, non_retryable=final, next_retry_delay=None if final else self._delay(1)
            )
        log.warning("attempt_failed", reason=reason, error_count=count, message=message)
        final = count is None or _is_lasting(error) or is_terminal(reason, count, self.reconciler.max_retries)
        return ApplicationError(
            message, type=reason, non_retryable=final, next_retry_delay=None if final else self._delay(count or 1)
        )

    def _delay(self, count: int) -> timedelta:
        """Exponential, with jitter: what failed together is not tried again together."""
        return self.backoff * float(2 ** (count - 1)) * random.uniform(0.75, 1.25)  # noqa: S311 - spreads load


def _is_lasting(error: Exception) -> bool:
    return isinstance(error, WorkspaceError) and error.lasting


def _in_full(error: Exception) -> str:
    """For the operation log. It begins like the outline, by which the log knows it again when the operation ends."""
    return _plain(f"{error}" if isinstance(error, WorkspaceError) else f"{type(error).__name__}: {error}")


def _plain(text: str) -> str:
    """A workspace may say what a database does not take (zero bytes) and what a terminal obeys."""
    kept = text[:_MESSAGE_LIMIT]
    return "".join(each if each.isprintable() or each in "\n\t" else "\ufffd" for each in kept)


def _time_used(begun: Begun) -> timedelta:
    """Of the operation's timeout, when an attempt begins. What was spent in a queue does not count. After an attempt
    that nobody heard the end of, as when its worker died, the clock starts anew; the workflow sees to how often."""
    if begun.number == 1 or begun.number > begun.failed + 1:
        return timedelta(0)
    return max(timedelta(0), begun.ran - _in_queue())


def _in_queue() -> timedelta:
    if not activity.in_activity():
        return timedelta(0)
    info = activity.info()
    return info.started_time - info.current_attempt_scheduled_time
