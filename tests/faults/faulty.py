"""Wrappers that make any adapter fail before or after its effect, hang, or wait at a step until a test lets it go."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

T = TypeVar("T")


@dataclass(slots=True)
class Gate:
    """Where a call waits. `reached` is set when it is there, and it goes on once `released` is."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    async def pass_through(self) -> None:
        self.reached.set()
        await self.released.wait()


@dataclass(slots=True)
class _Rule:
    method: str
    before: Callable[[], Awaitable[None]] | None
    after: Callable[[], Awaitable[None]] | None
    times: int
    skip: int


class Faults:
    """What happens to the calls of one wrapped object."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._rules: list[_Rule] = []

    def fail(self, method: str, error: Exception, *, after: bool = False, times: int = 1, skip: int = 0) -> None:
        """Raise, instead of calling, or after having called: then only the answer is lost."""

        async def boom() -> None:
            raise error

        self._rules.append(_Rule(method, None if after else boom, boom if after else None, times, skip))

    def pause(self, method: str, *, after: bool = False, skip: int = 0) -> Gate:
        """The next call (after `skip` others) waits before, or after, its effect."""
        gate = Gate()
        self._rules.append(
            _Rule(method, None if after else gate.pass_through, gate.pass_through if after else None, 1, skip)
        )
        return gate

    def watch(self, method: str, seen: Callable[[], Awaitable[None]], *, after: bool = False) -> None:
        """Do something at every call."""
        self._rules.append(_Rule(method, None if after else seen, seen if after else None, -1, 0))

    def taken(self, method: str) -> _Rule | None:
        self.calls.append(method)
        for rule in self._rules:
            if rule.method == method and rule.times:
                if rule.skip:
                    rule.skip -= 1
                    continue
                rule.times -= 1
                return rule
        return None


def faulty(target: T, faults: Faults | None = None) -> tuple[T, Faults]:
    """The same object with faults, and what controls them."""
    faults = faults or Faults()
    return cast("T", _Wrapped(target, faults)), faults


class _Wrapped:
    def __init__(self, target: Any, faults: Faults) -> None:
        self._target = target
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if not callable(found):
            return found
        if inspect.iscoroutinefunction(found):
            return _coroutine(found, name, self._faults)
        if inspect.isasyncgenfunction(found):
            return _generator(found, name, self._faults)
        if inspect.isasyncgenfunction(inspect.unwrap(found)):
            return _context(found, name, self._faults)
        return found


def _coroutine(found: Callable[..., Awaitable[Any]], name: str, faults: Faults) -> Callable[..., Awaitable[Any]]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        rule = faults.taken(name)
        await _happen(rule.before if rule else None)
        result = await found(*args, **kwargs)
        await _happen(rule.after if rule else None)
        return result

    return call


def _generator(found: Callable[..., AsyncIterator[Any]], name: str, faults: Faults) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        rule = faults.taken(name)
        await _happen(rule.before if rule else None)
        async for item in found(*args, **kwargs):
            yield item
        await _happen(rule.after if rule else None)

    return call


def _context(found: Callable[..., Any], name: str, faults: Faults) -> Callable[..., Any]:
    @asynccontextmanager
    async def call(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        rule = faults.taken(name)
        await _happen(rule.before if rule else None)
        async with found(*args, **kwargs) as entered:
            await _happen(rule.after if rule else None)
            yield entered

    return call


async def _happen(what: Callable[[], Awaitable[None]] | None) -> None:
    if what is not None:
        await what()
