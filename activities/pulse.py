"""An attempt's heartbeats: that its worker lives, and how far its transfer is, for whoever looks in the Temporal UI."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import timedelta

from temporalio import activity

from domain.progress import Moved, Stage


class Pulse:
    def __init__(self) -> None:
        self._details: tuple[dict[str, object], ...] = ()
        self.furthest = (False, 0)
        """Whether it came to verifying, and at how many bytes; over all that the attempt began anew."""

    def tell(self, told: Moved) -> None:
        """With every beat from now on."""
        self._details = (asdict(told),)
        self.furthest = max(self.furthest, (told.stage is Stage.VERIFYING, told.bytes_done))

    @asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        """Inside, where it is an activity. What is over before the first beat is due costs none."""
        if not activity.in_activity():
            yield
            return
        timeout = activity.info().heartbeat_timeout or timedelta(seconds=5)

        async def beat() -> None:
            while True:
                await asyncio.sleep(timeout.total_seconds() / 4)
                activity.heartbeat(*self._details)

        task = asyncio.create_task(beat())
        try:
            yield
        finally:
            task.cancel()
