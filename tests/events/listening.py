"""The leader's part in live events, without the rest of a leader."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from adapters.postgres.attention import Attention
from adapters.redis.events import EVERYONE, Event, EventBus, EventKind
from adapters.tasks import end
from coordinator.leader import Leader
from coordinator.listener import EventListener
from coordinator.publisher import Publisher
from coordinator.wakes import Wakes
from domain.model import UserId
from starter.api.dependencies import Dependencies
from tests.api.world import RecordedWakes


class Served(Protocol):
    """An API, with or without the proxy."""

    @property
    def deps(self) -> Dependencies: ...


@asynccontextmanager
async def listening(
    database_url: str, served: Served, bus: EventBus, *, hears_through: str | None = None
) -> AsyncIterator[Leader]:
    """Once entered, it listens, and what it told everyone at its start is over. `hears_through`: the database's URL
    for the listener alone; its leader has a connection of its own."""
    wakes = Wakes(Attention(served.deps.database), RecordedWakes(), grace=0.05)  # type: ignore[arg-type]
    listener = EventListener(hears_through or database_url, wakes, Publisher(bus))
    leader = Leader(database_url, "test", {"listener": listener.run}, retry_interval=0.1)
    leading: list[asyncio.Task[None]] = []
    try:
        async with bus.subscribed() as events:
            leading.append(asyncio.create_task(leader.run()))
            while (await anext(events)).user_id != EVERYONE:
                pass
        await heard(served)
        yield leader
    finally:
        await end(leading)


async def heard(served: Served) -> None:
    """The API listens, and has handled what was published before. At its start it has every screen look again: a test
    that counts what a screen is told must not begin before that, nor publish what nobody would hear."""
    hub = served.deps.hub
    assert hub
    screen = hub.open(UserId("nobody"))
    try:
        async with asyncio.timeout(60):
            while not screen.arrived.is_set():
                await hub.bus.publish([Event(EventKind.REFRESH, screen.user_id)])
                await asyncio.sleep(0.01)
    finally:
        hub.close(screen)
