"""One fault per workspace: many cases run side by side in one system, and each sees only its own.

A call is named by what is called and how often the case has called it before: `runtime.start#1`.
"""

import asyncio
import inspect
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, TypeVar, cast

import structlog
from temporalio import activity

from activities.attempt import Attempt
from activities.operate import Operator
from activities.reconcile import Reconciler
from adapters.postgres.database import DatabaseUnavailable
from adapters.redis.activity import RedisUnavailable
from domain.errors import Unreachable
from domain.model import Operation, WorkspaceId
from tests.faults.faulty import Faults, _Rule, faulty
from workflows.client import TemporalUnavailable
from workflows.messages import FAIL, FailInput, OperateInput, Step

T = TypeVar("T")

log = structlog.get_logger()


class Fault(StrEnum):
    BEFORE = "before"
    """It fails, and nothing happened."""
    AFTER = "after"
    """It happened, and the answer was lost."""
    LATE = "late"
    """The caller gave up; it happens all the same, a moment later."""
    ZOMBIE = "zombie"
    """The attempt falls silent, another takes over, the operation ends, and then this one goes on."""


@dataclass(eq=False)
class Case:
    point: str | None = None
    fault: Fault = Fault.BEFORE
    counting: bool = False
    """From when on calls are counted: what leads up to the operation is not looked at."""
    calls: list[str] = field(default_factory=list)
    of_attempts: set[str] = field(default_factory=set)
    """Those of them that an attempt of an operation made."""
    struck: bool = False
    released: asyncio.Event = field(default_factory=asyncio.Event)
    done: asyncio.Event = field(default_factory=asyncio.Event)
    """Of a late call or a zombie: it has gone on, to its end."""
    late: asyncio.Task[None] | None = None

    def reached(self, call: str) -> bool:
        """Whether the fault strikes here. What is no attempt can't be a zombie's."""
        if not self.counting:
            return False
        named = f"{call}#{Counter(self.calls)[call] + 1}"
        self.calls.append(call)
        if _SILENCE.get() is not None:
            self.of_attempts.add(named)
        if self.struck or named != self.point or (self.fault is Fault.ZOMBIE and _SILENCE.get() is None):
            return False
        self.struck = True
        return True

    @property
    def points(self) -> list[str]:
        """Every call of a run without a fault, as the point of a fault."""
        seen: Counter[str] = Counter()
        points = []
        for call in self.calls:
            seen[call] += 1
            points.append(f"{call}#{seen[call]}")
        return points


@dataclass(eq=False)
class Silence:
    """Of an attempt whose heartbeats have stopped."""

    zombie: Case | None = None


ERRORS: Mapping[str, type[Exception]] = MappingProxyType(
    {
        "runtime": Unreachable,
        "homes": Unreachable,
        "archives": Unreachable,
        "store": DatabaseUnavailable,
        "garbage": DatabaseUnavailable,
        "expiry": DatabaseUnavailable,
        "activity": RedisUnavailable,
        "waker": TemporalUnavailable,
    }
)
"""What a part that does not answer raises."""

_WORKSPACE: ContextVar[WorkspaceId | None] = ContextVar("workspace", default=None)
_SILENCE: ContextVar[Silence | None] = ContextVar("silence", default=None)


@contextmanager
def working_for(workspace_id: WorkspaceId, silence: Silence | None = None) -> Iterator[None]:
    tokens = _WORKSPACE.set(workspace_id), _SILENCE.set(silence)
    try:
        yield
    finally:
        _WORKSPACE.reset(tokens[0])
        _SILENCE.reset(tokens[1])


@dataclass
class Cases:
    by_workspace: dict[WorkspaceId, Case] = field(default_factory=dict)
    late_by: float = 0.4
    _targets: dict[str, object] = field(default_factory=dict)

    def wrap(self, part: str, target: T) -> T:
        """The adapter with the cases' faults in it."""
        error = ERRORS[part]
        inner = faulty(target, _PartFaults(self, part, error))[0]
        self._targets[part] = target
        return cast("T", _Late(self, part, target, inner, error))

    def can_be_late(self, point: str) -> bool:
        """A stream or a context can't go on without its caller."""
        part, _, call = point.partition(".")
        return inspect.iscoroutinefunction(getattr(self._targets[part], call.partition("#")[0]))

    def current(self) -> Case | None:
        workspace_id = _WORKSPACE.get()
        return self.by_workspace.get(workspace_id) if workspace_id else None


class _PartFaults(Faults):
    def __init__(self, cases: Cases, part: str, error: type[Exception]) -> None:
        super().__init__()
        self._cases = cases
        self._part = part
        self._error = error

    def taken(self, method: str) -> _Rule | None:
        case = self._cases.current()
        if case is None or not case.reached(f"{self._part}.{method}"):
            return None
        raised = self._raise(f"{self._part}.{method} was made to fail")
        match case.fault:
            case Fault.BEFORE:
                return _Rule(method, raised, None, 0, 0)
            case Fault.AFTER:
                return _Rule(method, None, raised, 0, 0)
            case Fault.ZOMBIE:
                return _Rule(method, lambda: _fall_silent(case), None, 0, 0)
            case Fault.LATE:
                return None

    def _raise(self, text: str) -> Callable[[], Awaitable[None]]:
        async def boom() -> None:
            raise self._error(text)

        return boom


class _Late:
    """In front of the others: a call that is late needs its arguments."""

    def __init__(self, cases: Cases, part: str, target: object, inner: object, error: type[Exception]) -> None:
        self._cases = cases
        self._part = part
        self._target = target
        self._inner = inner
        self._error = error

    def __getattr__(self, name: str) -> Any:
        real, inner = getattr(self._target, name), getattr(self._inner, name)
        if not inspect.iscoroutinefunction(real):
            return inner

        async def call(*args: Any, **kwargs: Any) -> Any:
            case = self._cases.current()
            if case is None or case.fault is not Fault.LATE:
                return await inner(*args, **kwargs)
            if not case.reached(f"{self._part}.{name}"):
                return await real(*args, **kwargs)
            case.late = asyncio.create_task(_later(self._cases.late_by, case, lambda: real(*args, **kwargs)))
            raise self._error(f"{self._part}.{name} was made to be late")

        return call


async def _later(seconds: float, case: Case, call: Callable[[], Awaitable[object]]) -> None:
    await asyncio.sleep(seconds)
    try:
        await call()
    except Exception as error:  # noqa: BLE001 - nobody is left to hear of it
        log.info("late_call_failed", error=str(error))
    case.done.set()


async def _fall_silent(case: Case) -> None:
    silence = _SILENCE.get()
    assert silence
    silence.zombie = case
    # As in a machine that stands still, it does not hear that it is cancelled either.
    while not case.released.is_set():
        with suppress(asyncio.CancelledError):
            await case.released.wait()


@asynccontextmanager
async def heartbeats() -> AsyncIterator[None]:
    """As those of `activities.pulse`, until the attempt falls silent."""
    silence = _SILENCE.get()

    async def beat() -> None:
        while not (silence and silence.zombie):
            activity.heartbeat()
            await asyncio.sleep(1)

    beating = asyncio.create_task(beat())
    try:
        yield
    finally:
        beating.cancel()


class NamedReconciler(Reconciler):
    """Says for whom it works."""

    async def step(self, workspace_id: WorkspaceId, looks: int = 0, attempt: Attempt | None = None) -> Step:
        with working_for(workspace_id, _SILENCE.get()):
            return await super().step(workspace_id, looks, attempt)

    @activity.defn(name=FAIL)
    async def fail(self, request: FailInput) -> None:
        with working_for(request.workspace_id):
            await super().fail(request)


class NamedOperator(Operator):
    async def run(self, operation: Operation, request: OperateInput) -> Step:
        silence = Silence()
        try:
            with working_for(request.workspace_id, silence):
                return await super().run(operation, request)
        finally:
            if silence.zombie is not None:
                silence.zombie.done.set()
