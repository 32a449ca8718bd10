"""Between the event loop and threads: compression, hashing and docker-py block, the loop must not."""

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_END = object()


async def from_thread(items: Iterator[T]) -> AsyncIterator[T]:
    """Iterate in a thread of its own."""
    loop = asyncio.get_running_loop()
    pool = ThreadPoolExecutor(1, thread_name_prefix="transfer")
    try:
        while True:
            item = await loop.run_in_executor(pool, next, items, _END)
            if item is _END:
                return
            yield item  # type: ignore[misc]
    finally:
        # What the thread reads from is closed by whoever opened it: that ends the thread.
        pool.shutdown(wait=False, cancel_futures=True)


def in_thread(call: Callable[[], T], name: str) -> "asyncio.Future[T]":
    """In a thread of its own: it takes no place from others, and what hangs in it keeps no process from ending."""
    job: Future[T] = Future()

    def run() -> None:
        try:
            job.set_result(call())
        except BaseException as error:  # noqa: BLE001 - handed to whoever awaits
            job.set_exception(error)

    job.set_running_or_notify_cancel()
    threading.Thread(target=run, name=name, daemon=True).start()
    return asyncio.wrap_future(job)


class Pipe:
    """Bytes from the event loop to a thread, a few chunks ahead at most."""

    def __init__(self, ahead: int = 8) -> None:
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Semaphore(ahead)
        self._queue: queue.SimpleQueue[bytes | BaseException | None] = queue.SimpleQueue()

    async def send(self, chunk: bytes) -> None:
        await self._room.acquire()
        self._queue.put(chunk)

    def close(self) -> None:
        self._queue.put(None)

    def fail(self, error: BaseException) -> None:
        """Whoever reads gets this, after what was sent before it."""
        self._queue.put(error)

    def __iter__(self) -> Iterator[bytes]:
        while True:
            item = self._queue.get()
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            self._loop.call_soon_threadsafe(self._room.release)
            yield item
