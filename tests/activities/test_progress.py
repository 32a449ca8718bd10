"""How far a transfer is: live events on the real bus, and heartbeats (SPEC 5, 9)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from hashlib import sha256
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import pytest
from temporalio.testing import ActivityEnvironment

from activities.attempt import Attempt
from activities.progress import ProgressEvents
from activities.pulse import Pulse
from activities.transfer import Progress, Transfers
from adapters.postgres.catalog import Catalog
from adapters.postgres.database import Database
from adapters.postgres.desired_state import DesiredStates
from adapters.postgres.workspaces import WorkspaceStore
from adapters.redis.events import Event, EventBus, EventKind
from adapters.tasks import end
from domain.archive import ArchiveMeta
from domain.limits import Limits
from domain.model import DesiredState, Operation, OperationId, Phase, UserId, WorkspaceId
from domain.progress import Moved, Stage, as_told
from tests.api.world import busy
from tests.domain.test_explain import workspace

SIZE = 1000


def attempt() -> Attempt:
    ws = workspace(Phase.STANDBY, DesiredState.ARCHIVED, operation=Operation.ARCHIVING)
    ws = replace(ws, id=WorkspaceId(str(uuid4())), owner_user_id=UserId(str(UUID(int=1))))
    return Attempt(ws, OperationId(str(uuid4())), 1)


async def under_way(database: Database) -> Attempt:
    """The same, with its rows."""
    one = attempt()
    ws, owner = one.workspace.id, UserId(str(uuid4()))
    await database.execute("INSERT INTO users (id, username, password_hash) VALUES ($1, $2, '')", owner, ws)
    await database.execute(
        "INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state, archive_op_id)"
        " VALUES ($1, $2, 'one', 'image', 'ARCHIVED', $1)",
        ws,
        owner,
    )
    op_id = OperationId(await busy(database, ws, Operation.ARCHIVING))
    return replace(one, op_id=op_id, workspace=replace(one.workspace, owner_user_id=owner))


async def asked(database: Database, one: Attempt) -> Moved | None:
    """What the API says of it."""
    catalog = Catalog(database, DesiredStates(database, Limits()))
    return (await catalog.get(one.workspace.id, one.workspace.owner_user_id)).progress


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

    async def next(self) -> dict[str, Any]:
        """The next one from now on."""
        self._more.clear()
        async with asyncio.timeout(20):
            await self._more.wait()
        return self.heard[-1]

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


async def test_a_transfer_ends_though_its_report_does_not_hear_that_it_is_over(database: Database) -> None:
    """As in a command to Redis, which may lose a cancellation: until then, the transfer was taken for a stuck one."""
    asked = asyncio.Event()

    async def publish(_attempt: Attempt, _moved: Moved) -> None:
        if not asked.is_set():
            asked.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    transfers = Transfers(WorkspaceStore(database), publish, stall_seconds=60, report_seconds=3600)
    async with asyncio.timeout(20), transfers.moving(attempt(), Progress(lambda: SIZE)):
        await asked.wait()


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
        done = SIZE // 2
        while not (half := await listener.next())["bytes_per_second"]:
            pass
        assert half["eta_seconds"] == round((SIZE - SIZE // 2) / half["bytes_per_second"], 1)
        done = SIZE
        assert (await listener.until(SIZE))["eta_seconds"] == 0


class Slow:
    """A store that hands an archive out piece by piece, when it is told to."""

    def __init__(self, pieces: int, size: int) -> None:
        self._pieces, self._size = pieces, size
        self.gate = asyncio.Semaphore(0)

    async def download(self, _key: str) -> AsyncIterator[bytes]:
        for _ in range(self._pieces):
            await self.gate.acquire()
            yield bytes(self._size)


async def test_reading_back_has_a_pace_of_its_own(database: Database, bus: EventBus, progress: ProgressEvents) -> None:
    """Verifying is a stage: it begins at nothing, and takes its time, told in the bytes of the home."""
    progress.interval = 0.05
    transfers = Transfers(WorkspaceStore(database), progress.publish, report_seconds=0.05)
    one, store = attempt(), Slow(4, 100)
    meta = ArchiveMeta(
        format_version=1,
        workspace_id=one.workspace.id,
        archive_op_id=one.op_id,
        sha256=sha256(bytes(400)).hexdigest(),
        size=400,
        raw_size=SIZE,
        entries=1,
        codehub_version="1",
        created_at=datetime.now(UTC),
    )
    async with hearing(bus) as listener, transfers.moving(one, Progress(lambda: SIZE, lambda: SIZE)):
        assert (await listener.until(SIZE))["stage"] == "TRANSFERRING"
    async with hearing(bus) as listener:
        reading = asyncio.create_task(transfers.is_intact(one, store, "k", meta))  # type: ignore[arg-type]
        begun = await listener.until(0)
        assert (begun["stage"], begun["bytes_total"], begun["eta_seconds"]) == ("VERIFYING", SIZE, None)
        store.gate.release()
        while (quarter := await listener.next())["eta_seconds"] is None:
            pass
        assert (quarter["stage"], quarter["bytes_done"]) == ("VERIFYING", SIZE // 4)
        assert quarter["eta_seconds"] > 0
        for _ in range(3):
            store.gate.release()
        assert await reading
        assert (await listener.until(SIZE))["bytes_total"] == SIZE


async def test_who_asks_is_told_what_events_tell(database: Database, bus: EventBus, progress: ProgressEvents) -> None:
    """Whoever looks, or connects again, knows as much as whoever listened; until nobody has told of it for a while."""
    progress.interval = 0.05
    transfers = Transfers(WorkspaceStore(database), progress.publish, report_seconds=0.05)
    one, done = await under_way(database), 0
    async with hearing(bus) as listener:
        async with transfers.moving(one, Progress(lambda: done, lambda: SIZE)):
            await listener.until(0)
            done = SIZE // 2
            while (await listener.next())["eta_seconds"] is None:
                pass
        found = await asked(database, one)
        assert found is not None
        assert (found.bytes_done, found.attempt) == (SIZE // 2, 1)
        assert found.eta_seconds
        while listener.heard[-1] != {"operation": "ARCHIVING", **asdict(found)}:
            await listener.next()

    await database.execute("UPDATE operations SET told_at = now() - interval '1 minute' WHERE id = $1", one.op_id)
    assert await asked(database, one) == replace(found, bytes_per_second=None, eta_seconds=None)


async def test_a_new_attempt_has_no_pace_yet(database: Database) -> None:
    """Nor is it at the stage that the former one had reached."""
    store, one = WorkspaceStore(database), await under_way(database)
    await store.save_progress(one.op_id, as_told(Stage.VERIFYING, SIZE // 2, SIZE, 100.0, 1))
    await store.begin_attempt(one.op_id)
    assert await asked(database, one) == as_told(Stage.TRANSFERRING, SIZE // 2, SIZE, None, 2)


async def test_what_begins_again_has_the_pace_of_its_own_bytes(
    database: Database, bus: EventBus, progress: ProgressEvents
) -> None:
    """Of a transfer that broke off and begins again in the same attempt: the time of the first one is not its own."""
    progress.interval = 0.05
    transfers = Transfers(WorkspaceStore(database), progress.publish, report_seconds=0.05)
    one, done = attempt(), 0
    async with hearing(bus) as listener, transfers.moving(one, Progress(lambda: done)):
        await listener.until(0)
        done = SIZE
        while not (await listener.next())["bytes_per_second"]:
            pass
    done = 0
    async with hearing(bus) as listener, transfers.moving(one, Progress(lambda: done)):
        assert (await listener.until(0))["bytes_per_second"] is None


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
    (said,) = heard[-1]
    assert (said["stage"], said["bytes_done"], said["bytes_total"]) == ("TRANSFERRING", 5, SIZE)
