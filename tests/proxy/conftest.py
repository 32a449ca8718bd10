import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import uvloop

from tests.proxy.world import Person, Workspace, World, serving, workspace


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that the server runs on."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def world(database_url: str, redis_url: str) -> AsyncIterator[World]:
    async with serving(database_url, redis_url) as world:
        yield world


@pytest.fixture
async def alice(world: World) -> Person:
    return await world.person("alice")


@pytest.fixture
async def bob(world: World) -> Person:
    return await world.person("bob")


@pytest.fixture
async def ws() -> AsyncIterator[Workspace]:
    async with workspace() as ws:
        yield ws


@pytest.fixture
async def at(world: World, alice: Person, ws: Workspace) -> str:
    """The path of alice's RUNNING workspace, which is `ws`."""
    return f"/w/{await world.row(alice, ws.endpoint)}/"
