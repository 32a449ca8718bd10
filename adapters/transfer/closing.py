"""What has a process behind it is made and closed beside the event loop: one that waits for a disk ends when the disk
answers, if ever, and nothing else may wait for that."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

import structlog

from adapters.transfer.bridge import in_thread

log = structlog.get_logger()

_PATIENCE = 5.0


class Closable(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=Closable)


async def started(make: Callable[[], C]) -> C:
    """Whoever is cancelled leaves at once; what the thread still makes is closed."""
    making = in_thread(make, "transfer-making")
    try:
        return await asyncio.shield(making)
    except asyncio.CancelledError:
        making.add_done_callback(_unwanted)
        raise


@asynccontextmanager
async def closing(thing: Closable) -> AsyncIterator[None]:
    """Afterwards it is closed; or left to a thread, if it does not end. Whoever is cancelled meanwhile waits as well,
    so that nobody writes any more when the next attempt makes a fresh volume."""
    try:
        yield
    finally:
        closed = in_thread(thing.close, "transfer-closing")
        try:
            await asyncio.wait({closed}, timeout=_PATIENCE)
        except asyncio.CancelledError:
            await asyncio.wait({closed}, timeout=_PATIENCE)
            raise
        if closed.done():
            closed.result()
        else:
            log.warning("process_does_not_end", kind=type(thing).__name__, seconds=_PATIENCE)


def _unwanted(making: "asyncio.Future[C]") -> None:
    if not making.cancelled() and making.exception() is None:
        in_thread(making.result().close, "transfer-closing")
