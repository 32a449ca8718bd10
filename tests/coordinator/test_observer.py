"""The Observer's event stream: what ends it is told, so that it is started again."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, cast
from uuid import uuid4

import pytest
from prometheus_client import REGISTRY

from adapters.archive_store import Fence, unfenced
from adapters.memory.runtime import MemoryRuntime
from adapters.postgres.attention import Attention
from adapters.postgres.database import Database, DatabaseUnavailable
from coordinator.observer import Observer
from domain.errors import ActionFailed, Unreachable
from domain.model import OperationId, WorkspaceId
from domain.observation import Resources


class Unforeseen(Exception):
    pass


class Stumbling(Attention):
    async def in_operation(self, changed: Mapping[WorkspaceId, timedelta]) -> tuple[set[WorkspaceId], set[WorkspaceId]]:
        raise Unforeseen(changed)

    async def drifted(self, node: str, seen: Mapping[WorkspaceId, Resources]) -> list[WorkspaceId]:
        return []

    async def deleted(self, among: Sequence[WorkspaceId]) -> list[WorkspaceId]:
        return []


class Away(Attention):
    async def drifted(self, node: str, seen: Mapping[WorkspaceId, Resources]) -> list[WorkspaceId]:
        raise DatabaseUnavailable


class Noting:
    def __init__(self) -> None:
        self.sweeps = 0

    async def drifted(self, node: str, seen: Mapping[WorkspaceId, Resources]) -> list[WorkspaceId]:
        self.sweeps += 1
        return []

    async def deleted(self, among: Sequence[WorkspaceId]) -> list[WorkspaceId]:
        return list(among)

    async def failed_to_start(self, node: str, among: Sequence[WorkspaceId]) -> list[WorkspaceId]:
        return []


class NobodyToWake:
    async def wake_all(self, workspaces: Sequence[WorkspaceId]) -> None:
        assert not workspaces


async def test_whoever_listens_again_looks_at_what_was_missed() -> None:
    """An engine that was restarted has ended every container, and nobody said so: the ports that rows still name are
    free for others."""
    attention, runtime = Noting(), MemoryRuntime()
    observer = Observer("here", cast("Any", attention), runtime, cast("Any", NobodyToWake()), interval=3600)
    for times in (1, 2):
        runtime.unreachable = False
        following = asyncio.create_task(observer.follow_events())
        async with asyncio.timeout(10):
            while attention.sweeps < times:
                await asyncio.sleep(0.01)
            runtime.unreachable = True
            with pytest.raises(Unreachable):
                await following


class Leaky(MemoryRuntime):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error
        self.asked = 0

    async def isolate(self) -> None:
        self.asked += 1
        raise self.error


@pytest.mark.parametrize("error", [ActionFailed("iptables failed"), Unreachable("away"), TimeoutError(), Unforeseen()])
async def test_rules_that_are_not_put_back_end_no_sweep(error: Exception) -> None:
    """It is counted, and everything else is looked at all the same. Where nothing runs, nobody is asked."""
    attention, runtime = Noting(), Leaky(error)
    observer = Observer("here", cast("Any", attention), runtime, cast("Any", NobodyToWake()))
    ws, before = WorkspaceId(str(uuid4())), _skipped()
    await runtime.create_volume(ws, OperationId("op"))
    await observer.sweep()
    assert runtime.asked == 0
    await runtime.create_volume(ws, OperationId("op"))
    await runtime.start(ws, "image", OperationId("op"))
    await observer.sweep()
    assert (runtime.asked, _skipped() - before) == (1, 1)
    assert attention.sweeps == 2
    assert not runtime.volumes, "what is left of a deleted workspace was cleared up"


async def test_rules_are_put_back_while_the_database_is_away() -> None:
    """They need none."""
    runtime = Leaky(ActionFailed(""))
    observer = Observer("here", Away(cast("Any", None)), runtime, cast("Any", NobodyToWake()))
    ws = WorkspaceId(str(uuid4()))
    await runtime.create_volume(ws, OperationId("op"))
    await runtime.start(ws, "image", OperationId("op"))
    with pytest.raises(DatabaseUnavailable):
        await observer.sweep()
    assert runtime.asked == 1


def _skipped() -> float:
    return REGISTRY.get_sample_value("codehub_skipped_total", {"loop": "isolation"}) or 0.0


async def test_a_checker_that_ends_ends_the_following() -> None:
    """Nobody would look at what changes any more, and nobody would know."""
    runtime = MemoryRuntime()
    observer = Observer("here", Stumbling(cast("Any", None)), runtime, cast("Any", NobodyToWake()))
    following = asyncio.create_task(observer.follow_events())
    try:
        async with asyncio.timeout(10):
            while not following.done():
                await runtime.create_volume(WorkspaceId(str(uuid4())), OperationId("op"))
                await asyncio.sleep(0.05)
        with pytest.raises(Unforeseen):
            following.result()
    finally:
        following.cancel()


class Held(MemoryRuntime):
    """It takes for ever to end a container."""

    async def stop(self, workspace_id: WorkspaceId, fence: Fence = unfenced) -> None:
        await asyncio.Event().wait()


async def test_what_takes_long_to_clear_away_makes_no_look_late() -> None:
    """PROMISE 24: drift is noticed within the interval, whatever else there is to do."""
    attention, runtime = Noting(), Held()
    await runtime.create_volume(WorkspaceId(str(uuid4())), OperationId("op"))
    observer = Observer("here", cast("Any", attention), runtime, cast("Any", NobodyToWake()), interval=0.1)
    sweeping = asyncio.create_task(observer.sweep_forever())
    try:
        async with asyncio.timeout(10):
            while attention.sweeps < 4:
                await asyncio.sleep(0.01)
    finally:
        sweeping.cancel()
        await asyncio.gather(sweeping, return_exceptions=True)
    assert asyncio.all_tasks() == {asyncio.current_task()}, "the clearing goes on"


class Counting(MemoryRuntime):
    def __init__(self) -> None:
        super().__init__()
        self.observed: list[WorkspaceId] = []

    async def observe(self, workspace_id: WorkspaceId, *, probe: bool) -> Resources:
        self.observed.append(workspace_id)
        return await super().observe(workspace_id, probe=probe)


# What is at rest, and what its last operation found: it began long ago and was seen to be complete then.
AT_REST = """
WITH made AS (
    INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state, phase, node)
    SELECT $1, id, $1::uuid::text, 'image', 'STANDBY', 'STANDBY', 'here' FROM users RETURNING id
)
INSERT INTO operations (id, workspace_id, operation, previous_phase, started_at, finished_at, outcome)
SELECT gen_random_uuid(), id, 'PROVISIONING', 'PENDING', now() - interval '1 hour',
    clock_timestamp() + $2::interval, $3 FROM made
"""


@pytest.mark.parametrize(
    ("finished", "outcome", "looks"),
    [(timedelta(hours=1), "SUCCEEDED", False), (timedelta(0), "SUCCEEDED", True), (timedelta(hours=1), "FAILED", True)],
    ids=["seen since", "not seen since", "failed since"],
)
async def test_what_an_operation_has_seen_since_is_not_looked_at_again(
    database: Database, finished: timedelta, outcome: str, looks: bool
) -> None:
    """An operation ends with a look of its own: what it did itself is no news. A change that comes later is."""
    runtime, one, other = Counting(), WorkspaceId(str(uuid4())), WorkspaceId(str(uuid4()))
    await database.execute(AT_REST, one, finished, outcome)
    await database.execute(AT_REST, other, timedelta(0), "SUCCEEDED")
    for workspace in (one, other):
        await runtime.create_volume(workspace, OperationId("op"))
    observer = Observer("here", Attention(database), runtime, cast("Any", NobodyToWake()))
    following = asyncio.create_task(observer.follow_events())
    try:
        async with asyncio.timeout(10):
            while observer.swept_at is None:
                await asyncio.sleep(0.01)
            for workspace in (one, other):
                runtime.drop_container(workspace)
            while other not in runtime.observed:
                await asyncio.sleep(0.01)
        assert (one in runtime.observed) is looks
    finally:
        following.cancel()
