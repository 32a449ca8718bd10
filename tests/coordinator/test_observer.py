"""The Observer's event stream: what ends it is told, so that it is started again."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast
from uuid import uuid4

import pytest

from adapters.archive_store import Fence, unfenced
from adapters.memory.runtime import MemoryRuntime
from adapters.postgres.attention import Attention
from coordinator.observer import Observer
from domain.errors import Unreachable
from domain.model import OperationId, WorkspaceId
from domain.observation import Resources


class Unforeseen(Exception):
    pass


class Stumbling(Attention):
    async def in_operation(self, among: Sequence[WorkspaceId]) -> set[WorkspaceId]:
        raise Unforeseen(among)

    async def drifted(self, node: str, seen: Mapping[WorkspaceId, Resources]) -> list[WorkspaceId]:
        return []

    async def deleted(self, among: Sequence[WorkspaceId]) -> list[WorkspaceId]:
        return []


class Noting:
    def __init__(self) -> None:
        self.sweeps = 0

    async def drifted(self, node: str, seen: Mapping[WorkspaceId, Resources]) -> list[WorkspaceId]:
        self.sweeps += 1
        return []

    async def deleted(self, among: Sequence[WorkspaceId]) -> list[WorkspaceId]:
        return list(among)


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
