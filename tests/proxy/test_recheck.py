"""What stays open is asked for its proof again, whatever happened to the database in between."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from starter.proxy.identities import Identities, Proof
from tests.proxy.world import Person, Workspace, World, serving, until

pytestmark = pytest.mark.usefixtures("only_if_told")


async def test_a_database_that_is_not_there_for_a_moment(
    postgres_url: str, database_url: str, redis_url: str, ws: Workspace
) -> None:
    """As when it is restored under another name: unknown is 503 and cuts nothing; afterwards logout still does."""
    name = database_url.rpartition("/")[2].partition("?")[0]
    async with serving(database_url, redis_url) as world:
        alice = await world.person("alice")
        at = f"/w/{await world.row(alice, ws.endpoint)}/"
        async with streaming(world, alice, ws, at) as reader:
            admin = await asyncpg.connect(postgres_url)
            try:
                await _rename(admin, name, f"{name}-away")
                world.proxy.sessions_changed()
                assert (await world.get(at, alice)).status == 503
                assert (await world.get("/api/v1/session", alice)).status == 503
                await _rename(admin, f"{name}-away", name)
            finally:
                await admin.close()
            await until(lambda: _is_let_in(world, alice, at))
            assert not reader.at_eof()
            await world.get("/api/v1/logout", alice, "POST", Content_Type="application/json")
            async with asyncio.timeout(30):
                assert await reader.read() == b"\r\n"


async def test_an_error_that_nobody_thought_of(
    world: World, alice: Person, ws: Workspace, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Skips one round for one proof, no more."""
    asked = asyncio.Event()
    identify = Identities._identify

    async def fail(self: Identities, proof: Proof) -> None:
        asked.set()
        raise RuntimeError("nobody thought of it")

    async with streaming(world, alice, ws, at) as reader:
        monkeypatch.setattr(Identities, "_identify", fail)
        world.proxy.sessions_changed()
        await asked.wait()
        monkeypatch.setattr(Identities, "_identify", identify)
        await world.get("/api/v1/logout", alice, "POST", Content_Type="application/json")
        async with asyncio.timeout(30):
            assert await reader.read() == b"\r\n"


@asynccontextmanager
async def streaming(world: World, person: Person, ws: Workspace, at: str) -> AsyncIterator[asyncio.StreamReader]:
    """An answer that has begun and does not end."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.read(65536)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nbeginning" if b"/stream" in head else ws.answer)
        await reader.read(1)

    ws.handler = handler
    async with world.connect() as (reader, writer):
        writer.write(f"GET {at}stream HTTP/1.1\r\nHost: {world.host}\r\nCookie: {person.cookie}\r\n\r\n".encode())
        await reader.readuntil(b"beginning")
        yield reader


async def _is_let_in(world: World, person: Person, at: str) -> bool:
    return (await world.get(at, person)).status == 200


async def _rename(admin: "asyncpg.Connection[asyncpg.Record]", old: str, new: str) -> None:
    async def renamed() -> bool:
        """Nobody may be connected, and a pool may connect again at any moment."""
        await admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", old)
        try:
            await admin.execute(f'ALTER DATABASE "{old}" RENAME TO "{new}"')
        except asyncpg.ObjectInUseError:
            return False
        return True

    await until(renamed)
