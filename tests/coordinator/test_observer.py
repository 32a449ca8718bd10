"""The Observer's event stream: what ends it is told, so that it is started again."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast
from uuid import uuid4

import pytest
from prometheus_client import REGISTRY

from adapters.memory.runtime import MemoryRuntime
from adapters.postgres.attention import Attention
from adapters.postgres.database import DatabaseUnavailable
from coordinator.observer import Observer
from domain.errors import ActionFailed, Unreachable
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
