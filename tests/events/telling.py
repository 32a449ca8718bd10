"""Progress, told as what moves bytes tells of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from adapters.redis.events import Event, EventBus
from adapters.tasks import end


@asynccontextmanager
async def again_and_again(bus: EventBus, event: Event) -> AsyncIterator[None]:
    """Whoever begins to listen in between misses one of them, not all."""

    async def tell() -> None:
        while True:
            await bus.publish([event])
            await asyncio.sleep(0.2)

    telling = asyncio.create_task(tell())
    try:
        yield
    finally:
        await end([telling])
