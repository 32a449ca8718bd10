"""During a takeover two may listen: the one that has lost its lock does not know yet, the other one leads already. Both
hear what is notified, wake whom it is about and tell the screens. No harm comes of it (PROMISE 23)."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from temporalio.client import Client

from adapters.memory.runtime import MemoryRuntime
from adapters.redis.events import Event, EventBus, EventKind
from adapters.tasks import end
from starter.electing import coordinator
from tests.api.world import Api, serving
from tests.events.listening import heard
from tests.events.stream import Stream, watching
from tests.integration.system import System, system

HARMLESS = (
    "SELECT operation, outcome, attempts, error_reason FROM operations WHERE workspace_id = $1 ORDER BY started_at"
)
SHOWN = ("phase", "operation", "desired_state", "memo", "error_reason", "error_count")


@dataclass(frozen=True)
class Life:
    """What became of a workspace, without what no two have in common."""

    row: dict[str, Any]
    operations: list[tuple[Any, ...]]
    shown: list[tuple[Any, ...]]
    """Where it came to rest, as a client was told."""


@pytest.mark.timeout(240)
async def test_what_two_hear_has_the_effect_of_what_one_hears(
    temporal_client: Client, database_url: str, redis_url: str, bus: EventBus
) -> None:
    """The same life, and nobody is woken but by them: the API tells Temporal nothing here. The row and the operations
    are those of a life with one listener, and a client is told each state once, in order, and of the end once."""
    async with (
        system(
            temporal_client, database_url, MemoryRuntime(), "image", coordinator=False, redis_url=redis_url
        ) as parts,
        serving(database_url, bus=bus) as api,
    ):
        await heard(api)
        async with listeners(parts, bus, 1) as told:
            alone = await life(api, "one", told, copies=1)
        async with listeners(parts, bus, 2) as told:
            assert await life(api, "other", told, copies=2) == alone
    assert [operation for operation, *_ in alone.operations] == ["PROVISIONING", "STARTING", "STOPPING", "DELETING"]
    assert all(tuple(rest) == ("SUCCEEDED", 1, None) for _, *rest in alone.operations)


async def life(api: Api, name: str, told: Counter[tuple[EventKind, str]], *, copies: int) -> Life:
    """Created, started, stopped, deleted; `copies`: how often each notification is heard."""
    person = await api.person(name)
    async with watching(person) as stream:
        workspace = await person.workspace(desired_state="RUNNING")
        path = f"/api/v1/workspaces/{workspace}"
        shown = [await stream.until(workspace, phase="RUNNING", operation="NONE")]
        await person("PATCH", path, {"memo": "note"})
        shown.append(await stream.until(workspace, memo="note"))
        await person("PATCH", path, {"desired_state": "STANDBY"})
        shown.append(await stream.until(workspace, phase="STANDBY", operation="NONE"))
        await person("DELETE", path)
        assert await stream.next("workspace_deleted") == ("workspace_deleted", {"id": workspace})
        async with asyncio.timeout(30):
            while told[EventKind.DELETED, workspace] < copies:
                await asyncio.sleep(0.02)
        # Behind what the second one told: had it been passed on, it would have come before this.
        last = await person.workspace()
        await stream.until(last)
        _told_once_and_in_order(stream, workspace)
    assert told[EventKind.DELETED, workspace] == copies
    row = await api.deps.database.fetchrow(f"SELECT {', '.join(SHOWN)} FROM workspaces WHERE id = $1", workspace)
    assert row
    operations = [tuple(line) for line in await api.deps.database.fetch(HARMLESS, workspace)]
    return Life(dict(row), operations, [tuple(body.get(name) for name in SHOWN) for body in shown])


def _told_once_and_in_order(stream: Stream, workspace: str) -> None:
    versions = [
        body["updated_at"] for kind, body in stream.seen if kind == "workspace_updated" and body["id"] == workspace
    ]
    assert versions == sorted(set(versions))
    assert [body for kind, body in stream.seen if kind == "workspace_deleted"] == [{"id": workspace}]


@asynccontextmanager
async def listeners(parts: System, bus: EventBus, count: int) -> AsyncIterator[Counter[tuple[EventKind, str]]]:
    """So many that all lead, each by a lock of its own; what they tell, once they listen."""
    told: Counter[tuple[EventKind, str]] = Counter()
    leaders = [coordinator(parts.parts) for _ in range(count)]
    for number, leader in enumerate(leaders):
        leader.lock_id += number
    async with bus.subscribed() as events:
        running = [asyncio.create_task(_count(events, told)), *(asyncio.create_task(one.run()) for one in leaders)]
        try:
            async with asyncio.timeout(60):
                while told[EventKind.REFRESH, ""] < count:
                    await asyncio.sleep(0.02)
            yield told
            assert all(leader.is_leader for leader in leaders)
        finally:
            await end(running)


async def _count(events: AsyncIterator[Event], told: Counter[tuple[EventKind, str]]) -> None:
    async for event in events:
        told[event.kind, event.workspace_id if event.kind is not EventKind.REFRESH else ""] += 1
