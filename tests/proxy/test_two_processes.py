"""What ends a login in one API process ends it in all of them: PostgreSQL tells, nobody waits for five seconds."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from adapters.redis.events import EventBus
from starter.api.logins import hash_secret
from tests.events.listening import listening
from tests.proxy.test_recheck import streaming
from tests.proxy.world import Workspace, World, serving, until

pytestmark = pytest.mark.usefixtures("only_if_told")

SECONDS = 30.0
"""The machine may be busy; without being told, it would be ten minutes."""


async def test_what_ends_in_one_ends_in_the_other(database_url: str, redis_url: str, ws: Workspace) -> None:
    """Logout, a revoked token and a disabled user: the next request is refused there, and what was open is cut."""
    async with _two(database_url, redis_url) as (one, other):
        alice, admin = await one.person("alice"), await one.person("admin")
        await one.deps.database.execute("UPDATE users SET is_admin = true WHERE username = 'admin'")
        at = f"/w/{await one.row(alice, ws.endpoint)}/"
        first, second = "chub_" + "a" * 43, "chub_" + "b" * 43
        made = await one.deps.tokens.create(alice.id, "first", hash_secret(first))
        await one.deps.tokens.create(alice.id, "second", hash_secret(second))

        async with streaming(other, alice, ws, at) as reader:
            for proof in ({"Cookie": alice.cookie}, *({"Authorization": f"Bearer {t}"} for t in (first, second))):
                assert (await other.get(at, None, **proof)).status == 200
            assert (await one.get(f"/api/v1/tokens/{made.id}", alice, "DELETE")).status == 204
            await _refused(other, at, Authorization=f"Bearer {first}")
            assert (await one.get("/api/v1/logout", alice, "POST", Content_Type="application/json")).status == 204
            await _refused(other, at, Cookie=alice.cookie)
            async with asyncio.timeout(SECONDS):
                assert await reader.read() == b"\r\n"
        assert (await other.get(at, None, Authorization=f"Bearer {second}")).status == 200
        path, body = f"/api/v1/users/{alice.id}", b'{"disabled": true}'
        assert (await one.get(path, admin, "PATCH", body, Content_Type="application/json")).status == 200
        await _refused(other, at, Authorization=f"Bearer {second}")


@asynccontextmanager
async def _two(database_url: str, redis_url: str) -> AsyncIterator[tuple[World, World]]:
    async with (
        serving(database_url, redis_url) as one,
        serving(database_url, redis_url) as other,
        listening(database_url, one, EventBus(one.redis)),
    ):
        yield one, other


async def _refused(world: World, at: str, **proof: str) -> None:
    async def is_refused() -> bool:
        return (await world.get(at, None, **proof)).status == 401

    await until(is_refused, SECONDS)
