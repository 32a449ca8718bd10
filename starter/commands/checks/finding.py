"""One thing that `codehub doctor` found out."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

Findings = AsyncIterator["Finding"]
DEADLINE_SECONDS = 15.0
_ASKED = 4


class Status(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    status: Status
    message: str
    advice: str | None = None
    """What to do about it."""
    milliseconds: float | None = None


class CheckFailed(Exception):
    """No use in looking further."""

    def __init__(self, message: str, advice: str) -> None:
        super().__init__(message)
        self.finding = bad(message, advice)


def ok(message: str, milliseconds: float | None = None) -> Finding:
    return Finding(Status.OK, message, milliseconds=milliseconds)


def warning(message: str, advice: str) -> Finding:
    return Finding(Status.WARNING, message, advice)


def bad(message: str, advice: str) -> Finding:
    return Finding(Status.FAILED, message, advice)


def needed(value: str | None, name: str) -> str:
    if not value:
        raise CheckFailed(
            f"{name} is not set", f"Set {name}; or name the data of a `codehub up` that runs here in CODEHUB_DATA."
        )
    return value


async def collected(findings: Findings, deadline: float = DEADLINE_SECONDS) -> list[Finding]:
    """What was found until the end, or until it went wrong, and how."""
    found: list[Finding] = []
    try:
        async with asyncio.timeout(deadline):
            async for finding in findings:
                found.append(finding)  # noqa: PERF401 - what was found before a failure counts
    except CheckFailed as failed:
        found.append(failed.finding)
    except TimeoutError:
        found.append(bad(f"no answer within {deadline:g} s", "See whether it is overloaded, or hangs."))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is wrong
        found.append(bad(f"{type(error).__name__}: {error}", "This is not expected: look into its own log."))
    return found


class Watch:
    """`with Watch() as watch`: `watch.milliseconds` is how long it took."""

    def __init__(self) -> None:
        self.milliseconds = 0.0

    def __enter__(self) -> Self:
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.milliseconds = (time.perf_counter() - self._began) * 1000


async def latency(call: Callable[[], Awaitable[object]]) -> float:
    """Milliseconds, the best of some: the first one connects, and other checks run beside it."""
    best = float("inf")
    for _ in range(_ASKED):
        with Watch() as watch:
            await call()
        best = min(best, watch.milliseconds)
    return best
