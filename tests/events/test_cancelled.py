"""Who listens ends when told to, at whatever moment that is."""

import asyncio
import random
from contextlib import suppress

import pytest

from adapters import tasks
from adapters.redis import events
from adapters.redis.events import EventBus

ROUNDS = 200


async def test_whoever_listens_can_be_cancelled(bus: EventBus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while it asks whether the server is still there: most of the time here, once every few seconds else."""
    monkeypatch.setattr(events, "_POLL", 0.002)
    moments = random.Random(1)

    async def listen(listening: asyncio.Event) -> None:
        async with bus.subscribed() as arriving:
            listening.set()
            async for _ in arriving:
                pass

    for _ in range(ROUNDS):
        listening = asyncio.Event()
        task = asyncio.create_task(listen(listening))
        await listening.wait()
        await asyncio.sleep(moments.uniform(0, 0.01))
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=10)
        assert done
        assert task.cancelled()


async def test_the_pool_gets_its_connection_back_as_it_was(bus: EventBus) -> None:
    async with bus.subscribed():
        pass
    connection = await bus.redis.connection_pool.get_connection()  # type: ignore[no-untyped-call]
    assert connection.socket_timeout
    await bus.redis.connection_pool.release(connection)


async def _deaf(times: int) -> None:
    """Loses as many cancellations."""
    for _ in range(times):
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
    await asyncio.sleep(60)


async def test_the_deaf_are_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_PATIENCE", 0.01)
    running = [asyncio.create_task(_deaf(times)) for times in (0, 1, 3)]
    await asyncio.sleep(0)
    await tasks.end(running)
    assert all(task.cancelled() for task in running)


async def test_who_is_cancelled_insists_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is over only when they are: far sooner than its patience lasts."""
    monkeypatch.setattr(tasks, "_PATIENCE", 600.0)
    running = asyncio.create_task(_deaf(1))
    await asyncio.sleep(0)
    ending = asyncio.create_task(tasks.end([running]))
    await asyncio.sleep(0.01)
    async with asyncio.timeout(30):
        ending.cancel()
        await asyncio.wait([ending])
    assert ending.cancelled()
    assert running.cancelled()


async def test_how_they_end_is_no_matter() -> None:
    async def fail() -> None:
        raise ValueError("wrong")

    running = [asyncio.create_task(fail()), asyncio.create_task(asyncio.sleep(60))]
    await asyncio.sleep(0.01)
    await tasks.end(running)
    assert isinstance(running[0].exception(), ValueError)
    assert running[1].cancelled()
