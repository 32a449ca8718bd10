"""The Observer's event stream: what ends it is told, so that it is started again."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast
from uuid import uuid4

import pytest

from adapters.memory.runtime import MemoryRuntime
from adapters.postgres.attention import Attention
from coordinator.observer import Observer
from domain.model import OperationId, WorkspaceId


class Unforeseen(Exception):
    pass


class Stumbling(Attention):
    async def in_operation(self, among: Sequence[WorkspaceId]) -> set[WorkspaceId]:
        raise Unforeseen(among)


async def test_a_checker_that_ends_ends_the_following() -> None:
    """Nobody would look at what changes any more, and nobody would know."""
    runtime = MemoryRuntime()
    observer = Observer("here", Stumbling(cast("Any", None)), runtime, cast("Any", None))
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
