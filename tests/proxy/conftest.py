"""One server for the tests of a file, made as new for each of them."""

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import pytest
import pytest_asyncio
import uvloop

from starter.proxy import identities, proxy
from tests.conftest import OwnServices, own_database, own_stacks
from tests.proxy.world import Person, Workspace, World, comes, serving, workspace
from tests.services import Services

SECONDS = 120.0


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that the server runs on."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, name: str, obj: object) -> None:
    """In the server's loop."""
    if name.startswith("test_") and inspect.iscoroutinefunction(obj):
        pytest.mark.asyncio(loop_scope="module")(obj)


def pytest_itemcollected(item: pytest.Item) -> None:
    """pytest-timeout's alarm does not get through to a loop of uvloop that waits."""
    if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
        item.obj = _limited(item.obj)


def _limited(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @functools.wraps(test)
    async def limited(*args: object, **kwargs: object) -> None:
        async with asyncio.timeout(SECONDS):
            await test(*args, **kwargs)

    return limited


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def urls(services: Services, postgres_url: str, database_template: str) -> AsyncIterator[tuple[str, str]]:
    """Of a database and of Redis."""
    async with own_database(postgres_url, f'TEMPLATE "{database_template}"') as database_url:
        yield database_url, services.need("valkey")["url"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(urls: tuple[str, str]) -> AsyncIterator[World]:
    # What was seen is for the tests to look at: none of it is reported, and forgotten, meanwhile.
    async with serving(*urls, flush_interval=3600) as world:
        yield world


@pytest_asyncio.fixture(loop_scope="module")
async def world(server: World) -> AsyncIterator[World]:
    """The server with nobody in it."""
    await server.deps.database.execute("TRUNCATE users CASCADE")
    await server.redis.flushall()
    server.proxy.sessions_changed()
    server.proxy.directory.invalidate_all()
    server.proxy.activity.seen.clear()
    server.wakes.woken.clear()
    server.seen.clear()
    yield server
    await comes(lambda: not server.proxy.open)


@pytest.fixture
def only_if_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks by himself whether a login still stands: what ends with one ends by being told, however long a
    busy machine takes for it. To be named by `usefixtures`, before `world`, which has the proxy begin anew.
    """
    monkeypatch.setattr(identities, "SECONDS", 600.0)
    monkeypatch.setattr(proxy, "SECONDS", 600.0)


@pytest_asyncio.fixture(loop_scope="module")
async def own_services(services: Services) -> AsyncIterator[OwnServices]:
    """As everywhere, in the loop of these tests."""
    async with own_stacks(services) as start:
        yield start


@pytest_asyncio.fixture(loop_scope="module")
async def alice(world: World) -> Person:
    return await world.person("alice")


@pytest_asyncio.fixture(loop_scope="module")
async def bob(world: World) -> Person:
    return await world.person("bob")


@pytest_asyncio.fixture(loop_scope="module")
async def ws() -> AsyncIterator[Workspace]:
    async with workspace() as ws:
        yield ws


@pytest_asyncio.fixture(loop_scope="module")
async def at(world: World, alice: Person, ws: Workspace) -> str:
    """The path of alice's RUNNING workspace, which is `ws`."""
    return f"/w/{await world.row(alice, ws.endpoint)}/"
