"""Services that a worker can begin without: what needs them waits by itself, and a lookout tells what is missing."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from adapters.tasks import end
from domain.errors import ActionFailed, Unreachable
from settings import SettingsError
from starter.patience import Patience, Stopped


@dataclass(frozen=True, slots=True)
class Lookout:
    service: str
    setting: str
    """Which variable names it."""
    address: str
    call: Callable[[], Awaitable[object]]
    away: tuple[type[Exception], ...] = (Unreachable,)

    async def run(self, patience: Patience) -> None:
        """Until it is there. A service that answers "no" is a wrong setting: SettingsError."""
        try:
            await patience.until_there(self.service, self.address, self.call, *self.away)
        except ActionFailed as error:
            raise SettingsError(f"{self.setting}: {self.service} at {self.address} can't be used: {error}") from error
        except Stopped:
            return


@asynccontextmanager
async def looking_out(patience: Patience, *lookouts: Lookout) -> AsyncIterator[Sequence[asyncio.Task[None]]]:
    tasks = [asyncio.create_task(lookout.run(patience), name=f"look out for {lookout.service}") for lookout in lookouts]
    try:
        yield tasks
    finally:
        await end(tasks)


async def until_stopped(stop: asyncio.Event, lookouts: Sequence[asyncio.Task[None]]) -> None:
    """Until `stop` is set; raises what a lookout found to be wrong."""
    stopping = asyncio.create_task(stop.wait())
    waiting: set[asyncio.Task[object]] = {stopping, *lookouts}
    try:
        while not stopping.done():
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
    finally:
        stopping.cancel()
