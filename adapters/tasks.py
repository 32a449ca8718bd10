"""Tasks that run beside something, and their end."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import structlog

from adapters.telemetry.metrics import SKIPPED

log = structlog.get_logger()

_PATIENCE = 5.0
_AGAIN = 1.0


async def supervised(name: str, run: Callable[[], Awaitable[None]], *cut_off: type[Exception]) -> None:
    """`run`, again and again: an error skips what it was doing, and it starts over. Nobody would notice that a loop
    beside everything else has ended. `cut_off` are errors that say no more than that something is away.
    """
    while True:
        try:
            await run()
        except cut_off as error:
            SKIPPED.labels(name).inc()
            log.warning("component_cut_off", component=name, error=str(error))
        except Exception:
            SKIPPED.labels(name).inc()
            log.exception("component_failed", component=name)
        await asyncio.sleep(_AGAIN)


async def end(tasks: Collection["asyncio.Future[Any]"]) -> None:
    """Cancel them and wait until they are over, however they end; who wants to know how asks them.

    They are told again after a while: before Python 3.12 `asyncio.wait_for` loses a cancellation that comes when its
    work has just been done, and libraries use it (redis-py, in each command). Who is cancelled meanwhile insists at
    once, and still waits.
    """
    left = {task for task in tasks if not task.done()}
    interrupted: asyncio.CancelledError | None = None
    while left:
        for task in left:
            task.cancel()
        try:
            _, left = await asyncio.wait(left, timeout=_PATIENCE)
        except asyncio.CancelledError as error:
            interrupted = error
            left = {task for task in left if not task.done()}
    for task in tasks:
        if not task.cancelled():
            # Asked for, so that nobody reports it as never retrieved.
            task.exception()
    if interrupted is not None:
        raise interrupted
