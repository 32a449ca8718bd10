"""How far a transfer is: live events on the real bus, and heartbeats (SPEC 5, 9)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import pytest
from temporalio.testing import ActivityEnvironment

from activities.attempt import Attempt
from activities.progress import ProgressEvents
from activities.pulse import Pulse
from activities.transfer import Progress, Transfers
from adapters.postgres.database import Database
from adapters.postgres.workspaces import WorkspaceStore
from adapters.redis.events import Event, EventBus, EventKind
from adapters.tasks import end
from domain.model import DesiredState, Operation, OperationId, Phase, UserId, WorkspaceId
from tests.domain.test_explain import workspace

SIZE = 1000


def attempt() -> Attempt:
    ws = workspace(Phase.STANDBY, DesiredState.ARCHIVED, operation=Operation.ARCHIVING)
    ws = replace(ws, id=WorkspaceId(str(uuid4())), owner_user_id=UserId(str(UUID(int=1))))
    return Attempt(ws, OperationId(str(uuid4())), 1)


@pytest.fixture
async def progress(bus: EventBus) -> AsyncIterator[ProgressEvents]:
    events = ProgressEvents(bus)
    yield events
    await events.close()


class Noting:
    """A bus that knows when it was given something: what arrives may have been held up on the way."""

    def __init__(self, bus: EventBus) -> None:
        self._bus = bus
        self.times: list[float] = []

    async def publish(self, events: list[Event]) -> None:
        self.times.append(asyncio.get_running_loop().time())
        await self._bus.publish(events)


class Listener:
    """What each event said."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self._more = asyncio.Event()

    def hear(self, details: dict[str, Any]) -> None:
        self.heard.append(details)
        self._more.set()

    async def until(self, done: int) -> dict[str, Any]:
        async with asyncio.timeout(20):
            while not self.heard or self.heard[-1]["bytes_done"] != done:
                self._more.clear()
                await self._more.wait()
        return self.heard[-1]


@asynccontextmanager
async def hearing(bus: EventBus) -> AsyncIterator[Listener]:
    listener, ready = Listener(), asyncio.Event()

    async def listen() -> None:
        async with bus.subscribed() as events:
            ready.set()
            async for event in events:
                if event.kind is EventKind.PROGRESS:
                    listener.hear(event.details or {})

    task = asyncio.create_task(listen())
    try:
        await ready.wait()
        yield listener
    finally:
        await end([task])


async def test_a_small_home_is_told_of_once_a_second_and_to_its_end(
    database: Database, bus: EventBus, progress: ProgressEvents
) -> None:
    """It is read, and read back, in no time: what is said in between is left out, not what is said last."""
    sent, clock = Noting(bus), asyncio.get_running_loop().time
    progress.bus = sent  # type: ignore[assignment]
    transfers = Transfers(WorkspaceStore(database), progress.publish)
    one, done = attempt(), 0
    async with hearing(bus) as listener:
        began = clock()
        async with transfers.moving(one, Progress(lambda: done, lambda: SIZE)):
            done = SIZE // 2
        async with transfers.moving(one, Progress(lambda: done, lambda: SIZE)):
            done = SIZE
        took = clock() - began
        assert (await listener.until(SIZE))["bytes_total"] == SIZE
    # One at once and one at the end; one more for each second that the machine stood still.
    assert 2 <= len(sent.times) <= 2 + int(took)
    assert all(later - sooner > 0.9 for sooner, later in pairwise(sent.times))


async def test_rate_and_time_left(database: Database, bus: EventBus, progress: ProgressEvents) -> None:
    progress.interval = 0.05
    transfers = Transfers(WorkspaceStore(database), progress.publish, report_seconds=0.05)
    done = 0
    async with (
        hearing(bus) as listener,
        transfers.moving(attempt(), Progress(lambda: done, lambda: SIZE)),
    ):
        first = await listener.until(0)
        assert (first["operation"], first["bytes_per_second"], first["eta_seconds"]) == ("ARCHIVING", None, None)
        await asyncio.sleep(0.6)
        done = SIZE // 2
        half = await listener.until(SIZE // 2)
        assert 0 < half["bytes_per_second"] < SIZE
        assert half["eta_seconds"] > 0.5
        done = SIZE
        assert (await listener.until(SIZE))["eta_seconds"] == 0


async def test_heartbeats_tell_how_far_it_is(database: Database) -> None:
    """So that the Temporal UI shows it."""
    one, told, heard = attempt(), asyncio.Event(), list[Any]()
    transfers = Transfers(WorkspaceStore(database))

    def beaten(*details: Any) -> None:
        heard.append(details)
        if details:
            told.set()

    async def act(pulse: Pulse) -> None:
        async with pulse.beating(), transfers.moving(replace(one, pulse=pulse), Progress(lambda: 5, lambda: SIZE)):
            await told.wait()

    environment = ActivityEnvironment()
    environment.on_heartbeat = beaten
    async with asyncio.timeout(20):
        await environment.run(act, Pulse())
    assert heard[-1] == ({"bytes_done": 5, "bytes_total": SIZE},)
