"""What is remembered: no query on the hot path, nothing stale after an event, one query however many ask."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from adapters.postgres.accounts import User
from adapters.postgres.database import DatabaseUnavailable
from adapters.postgres.sessions import Identity
from adapters.redis.events import EVERYONE, Event, EventBus, EventKind
from domain.model import DesiredState, Operation, Phase, UserId, WorkspaceId
from starter.api.logins import hash_secret
from starter.proxy import identities
from starter.proxy.decide import View
from starter.proxy.directory import Directory
from starter.proxy.invalidation import Invalidation
from tests.conftest import OwnServices
from tests.proxy.world import Person, Workspace, World, serving, until

ID = WorkspaceId("0b8f6f0e-6a7b-4c7e-9d3a-2f1e5c4b3a21")
OTHER = WorkspaceId("1b8f6f0e-6a7b-4c7e-9d3a-2f1e5c4b3a21")


def view(endpoint: str = "127.0.0.1:1", phase: Phase = Phase.RUNNING) -> View:
    return View(ID, UserId("u"), "n", phase, Operation.NONE, DesiredState.RUNNING, endpoint, None)


@pytest.fixture
def lasting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what happens has anything forgotten: no age does, however slow the machine is."""
    monkeypatch.setattr("starter.proxy.directory._RUNNING_SECONDS", 600.0)


class Rows:
    """A database that can be held up."""

    def __init__(self) -> None:
        self.current: View | None = view()
        self.asked = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def load(self, _: WorkspaceId) -> View | None:
        self.asked += 1
        found = self.current
        await self.gate.wait()
        return found


async def test_no_query_per_request(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """A hundred requests cost as many queries as there are seconds, not as there are requests."""
    # From here on what is remembered has its age.
    started = time.monotonic()
    await world.get(at, alice)
    before = await _statements(world)
    assert before > 0
    async with world.connect() as (reader, writer):
        for _ in range(100):
            writer.write(f"GET {at} HTTP/1.1\r\nHost: {world.host}\r\nCookie: {alice.cookie}\r\n\r\n".encode())
            await reader.readuntil(b"ok")
    assert await _statements(world) - before <= 2 + 2 * (time.monotonic() - started)
    assert ws.requests == 101


async def test_the_workspaces_own_cookies_cost_no_query(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """Who is calling is remembered by what proves it: a cookie that a workspace changes with each answer, and a bearer
    token beside any cookie, are found all the same, and nobody else is forgotten for them.
    """
    token = "chub_" + "q" * 43
    await world.deps.tokens.create(alice.id, "t", hash_secret(token))
    before = await _statements(world)
    started = time.monotonic()
    async with world.connect() as (reader, writer):
        for number in range(100):
            for proof in (
                f"Cookie: rolling={number}; {alice.cookie}; _xsrf={number}",
                f"Cookie: session=old{number}; {alice.cookie}",
                f"Cookie: rolling={number}\r\nAuthorization: Bearer {token}",
            ):
                writer.write(f"GET {at} HTTP/1.1\r\nHost: {world.host}\r\n{proof}\r\n\r\n".encode())
                await reader.readuntil(b"ok")
    # Each proof and the row, once in their few seconds; that the token was used; and the preparing of each statement.
    assert await _statements(world) - before <= 20 + 3 * (time.monotonic() - started)
    assert len(world.proxy.identities._known) <= 2


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest goes for the newest; the others stay."""
    monkeypatch.setattr(identities, "_MOST", 3)
    user = User(UserId("u"), "alice", False, datetime.now(UTC), None)
    known = identities.Identities(None)  # type: ignore[arg-type]
    proofs = [identities.Proof("http", b"session=%d" % number, b"") for number in range(5)]
    for proof in proofs:
        known._keep(proof, Identity(user, b""), time.monotonic())
    assert [known.cached(proof) is not None for proof in proofs] == [False, False, True, True, True]


async def test_one_query_for_all_who_ask(lasting: None) -> None:
    """Fifty at once cost one; one that goes away takes nobody with it."""
    rows = Rows()
    rows.gate.clear()
    directory = Directory(rows.load)
    waiting = [asyncio.create_task(directory.find(ID)) for _ in range(50)]
    await until(lambda: _asked(rows, 1))
    waiting[0].cancel()
    rows.gate.set()
    found = await asyncio.gather(*waiting[1:])
    assert found == [view()] * 49
    assert rows.asked == 1
    assert directory.cached(ID) is not None


async def test_an_event_during_the_query(lasting: None) -> None:
    """What was read before the event is not kept, and who asks after it gets what is true after it."""
    rows = Rows()
    rows.gate.clear()
    directory = Directory(rows.load)
    early = asyncio.create_task(directory.find(ID))
    await until(lambda: _asked(rows, 1))
    rows.current = view("127.0.0.1:2")
    directory.invalidate(ID)
    late = asyncio.create_task(directory.find(ID))
    await until(lambda: _asked(rows, 2))
    rows.gate.set()
    assert (await early, await late) == (view(), view("127.0.0.1:2"))
    assert (await directory.find(ID)) == view("127.0.0.1:2")
    assert rows.asked == 2


async def test_a_failed_query_is_not_remembered() -> None:
    """All who waited get the error; the next one asks again."""
    calls = iter([DatabaseUnavailable("away"), None])

    async def load(_: WorkspaceId) -> View | None:
        error = next(calls)
        if error:
            raise error
        return view()

    directory = Directory(load)
    with pytest.raises(DatabaseUnavailable):
        await directory.find(ID)
    assert await directory.find(ID) == view()


async def test_events_reach_it(redis_url: str, lasting: None) -> None:
    """Over the Redis channel of any user; progress changes nothing, and a refresh everything."""
    redis: Redis = Redis.from_url(redis_url)
    # Of its own, or it could not be told from the server of the other tests here, which listens to all that is ours.
    bus, user = EventBus(redis, f"{uuid4()}:"), UserId("u")
    others = await redis.pubsub_numpat()
    directory = Directory(Rows().load)
    following = asyncio.create_task(Invalidation(bus, directory, lambda: None).run())
    try:
        await until(lambda: _subscribed(redis, others))
        for event in (
            Event(EventKind.UPDATED, user, ID),
            Event(EventKind.DELETED, user, ID),
            Event(EventKind.REFRESH, EVERYONE),
        ):
            await directory.find(ID)
            await bus.publish([event])
            await until(lambda: _is(directory, None))
        known = await _known(directory)
        await bus.publish([Event(EventKind.UPDATED, user, OTHER), Event(EventKind.PROGRESS, user, ID)])
        await directory.find(OTHER)
        await bus.publish([Event(EventKind.UPDATED, user, OTHER)])
        await until(lambda: _forgotten(directory))
        assert directory.cached(ID) is known
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await redis.aclose()


async def test_redis_away(own_services: OwnServices) -> None:
    """Events come back by themselves; what was missed is taken for changed (PROMISE 25)."""
    stack = await own_services("valkey")
    redis: Redis = Redis.from_url(stack.env["REDIS_URL"])
    directory = Directory(Rows().load)
    following = asyncio.create_task(Invalidation(EventBus(redis), directory, lambda: None).run())
    try:
        await until(lambda: _subscribed(redis))
        await stack.supervisor.pause("valkey")
        await directory.find(ID)
        await stack.supervisor.resume("valkey")
        await until(lambda: _is(directory, None), 20)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await redis.aclose()


async def test_the_database_away(own_services: OwnServices, redis_url: str, ws: Workspace) -> None:
    """503 with Retry-After for what is not known, nothing passes unchecked, and it comes back by itself."""
    from adapters.postgres.migrate import migrate

    stack = await own_services("postgres")
    await migrate(stack.env["DATABASE_URL"])
    async with serving(stack.env["DATABASE_URL"], redis_url) as world:
        alice = await world.person("alice")
        at = f"/w/{await world.row(alice, ws.endpoint)}/"
        assert (await world.get(at, alice)).status == 200
        await stack.supervisor.pause("postgres")
        world.proxy.sessions_changed()
        answer = await world.get(at, alice)
        assert (answer.status, answer.get("retry-after")) == (503, "2")
        assert (await world.open(at, alice)).status == 503
        assert (await world.get(at)).status == 401
        await stack.supervisor.resume("postgres")
        await until(_answers(world, at, alice), 20)


def _answers(world: World, at: str, person: Person) -> Callable[[], Awaitable[bool]]:
    async def answers() -> bool:
        return (await world.get(at, person)).status == 200

    return answers


async def _asked(rows: Rows, times: int) -> bool:
    return rows.asked == times


async def _statements(world: World) -> int:
    """How many this process has sent."""
    pool = world.deps.database.pool
    return sum(holder._con._protocol.queries_count for holder in pool._holders if holder._con is not None)  # type: ignore[attr-defined]


async def _is(directory: Directory, expected: object) -> bool:
    return directory.cached(ID) is expected


async def _known(directory: Directory) -> object:
    await directory.find(ID)
    return directory.cached(ID)


async def _forgotten(directory: Directory) -> bool:
    return directory.cached(OTHER) is None


async def _subscribed(redis: Redis, others: int = 0) -> bool:
    return bool(await redis.pubsub_numpat() > others)


@pytest.mark.usefixtures("lasting")
async def test_what_an_admin_does_is_known_at_once(world: World, alice: Person, bob: Person, at: str) -> None:
    """By their own way, too: the proxy of this process looks again, and nobody's login is asked for again for it."""
    workspace_id = at.split("/")[2]
    await world.deps.database.execute("UPDATE users SET is_admin = true WHERE id = $1", bob.id)
    assert (await world.get(at, alice)).status == 200
    await world.deps.database.execute(
        "UPDATE workspaces SET phase = 'ERROR', error_reason = 'Timeout' WHERE id = $1", workspace_id
    )
    assert (await world.get(at, alice)).status == 200, "nobody has told"
    generation = world.proxy.identities._generation
    recover = f"/api/v1/admin/workspaces/{workspace_id}/recover"
    answer = await world.get(recover, bob, "POST", Content_Type="application/json", Origin=world.origin)
    assert answer.status == 200
    assert (await world.get(at, alice)).status != 200
    assert world.proxy.identities._generation == generation
