"""Who is woken by notification: what TTL changed at once, and whom the API should have woken after a moment."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID, uuid4

from adapters.postgres.attention import Attention
from adapters.postgres.database import Database
from adapters.tasks import end
from adapters.telemetry.metrics import WAKES_RESCUED
from coordinator.wakes import Wakes
from domain.model import WorkspaceId
from tests.api.world import RecordedWakes

NEVER = 3600.0
SOON = 0.05


async def _on_its_way(database: Database) -> WorkspaceId:
    """Nobody attends to it."""
    id_ = uuid4()
    await database.execute(
        "INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state, phase)"
        " VALUES ($1, $2, $1::uuid::text, 'image', 'STANDBY', 'RUNNING')",
        id_,
        UUID(int=1),
    )
    return WorkspaceId(str(id_))


@asynccontextmanager
async def _running(wakes: Wakes) -> AsyncIterator[None]:
    task = asyncio.create_task(wakes.run())
    try:
        yield
    finally:
        await end([task])


async def _until_woken(sent: RecordedWakes, *expected: WorkspaceId) -> None:
    async with asyncio.timeout(30):
        while set(sent.woken) != set(expected):
            await asyncio.sleep(0.01)


def _rescued() -> float:
    return float(WAKES_RESCUED._value.get())


async def test_what_nobody_else_wakes_is_woken_at_once(database: Database) -> None:
    """And is no wake that somebody lost, whatever an alert thinks of those."""
    expired, asked = await _on_its_way(database), await _on_its_way(database)
    before, sent = _rescued(), RecordedWakes()
    wakes = Wakes(Attention(database), sent, grace=NEVER)  # type: ignore[arg-type]
    wakes.add(asked)
    wakes.add(expired, ours=True)
    async with _running(wakes):
        await _until_woken(sent, expired)
    assert _rescued() == before


async def test_what_the_api_did_not_wake_is_woken_after_a_moment(database: Database) -> None:
    """What it did wake is attended to by then."""
    lost, sent_already = await _on_its_way(database), await _on_its_way(database)
    await database.execute("UPDATE workspaces SET phase = 'STANDBY' WHERE id = $1", sent_already)
    before, sent = _rescued(), RecordedWakes()
    wakes = Wakes(Attention(database), sent, grace=SOON)  # type: ignore[arg-type]
    async with _running(wakes):
        wakes.add(lost)
        wakes.add(sent_already)
        await _until_woken(sent, lost)
    assert _rescued() == before + 1


async def test_many_that_were_asked_for_together_have_time(database: Database) -> None:
    """Each has had its signal, and waits for its turn. What nobody else wakes does not wait with them."""
    many = [await _on_its_way(database) for _ in range(3)]
    expired, sent = await _on_its_way(database), RecordedWakes()
    wakes = Wakes(Attention(database), sent, grace=SOON, turn=0.5)  # type: ignore[arg-type]
    began = asyncio.get_running_loop().time()
    async with _running(wakes):
        wakes.add(many[0])
        await asyncio.sleep(SOON / 5)
        wakes.add(many[1])
        wakes.add(many[2])
        await asyncio.sleep(SOON / 5)
        wakes.add(expired, ours=True)
        await _until_woken(sent, expired)
        assert asyncio.get_running_loop().time() - began < SOON + 3 * 0.5
        await _until_woken(sent, expired, *many)
        assert asyncio.get_running_loop().time() - began >= SOON + 3 * 0.5


async def test_whatever_temporal_did_not_take_is_sent_when_it_is_back(database: Database) -> None:
    expired, asked = await _on_its_way(database), await _on_its_way(database)
    sent = RecordedWakes(away=True)
    wakes = Wakes(Attention(database), sent, grace=SOON)  # type: ignore[arg-type]
    async with _running(wakes):
        wakes.add(expired, ours=True)
        wakes.add(asked)
        await asyncio.sleep(3 * SOON)
        sent.away = False
        await _until_woken(sent, expired, asked)
