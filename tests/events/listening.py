"""The leader's part in live events, without the rest of a leader."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from adapters.postgres.attention import Attention
from adapters.redis.events import EventBus
from coordinator.leader import Leader
from coordinator.listener import EventListener
from coordinator.publisher import Publisher
from coordinator.wakes import Wakes
from starter.api.dependencies import Dependencies
from tests.api.world import RecordedWakes


class Served(Protocol):
    """An API, with or without the proxy."""

    @property
    def deps(self) -> Dependencies: ...


@asynccontextmanager
async def listening(database_url: str, served: Served, bus: EventBus) -> AsyncIterator[Leader]:
    wakes = Wakes(Attention(served.deps.database), RecordedWakes(), grace=0.05)  # type: ignore[arg-type]
    listener = EventListener(database_url, wakes, Publisher(bus))
    leader = Leader(database_url, "test", {"listener": listener.run}, retry_interval=0.1)
    task = asyncio.create_task(leader.run())
    try:
        while not leader.is_leader:
            await asyncio.sleep(0.01)
        yield leader
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
