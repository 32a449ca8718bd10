"""Live events end with the login that they were opened by, whichever process ended it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

import pytest

from adapters.redis.events import EventBus
from starter.api import standing
from starter.api.logins import hash_secret
from tests.api.world import PASSWORD, Api, Person, serving
from tests.events.listening import listening
from tests.events.stream import Stream, watching

SOON = 60.0
"""Of the ten minutes after which somebody would look."""


@pytest.fixture
async def api(database_url: str, bus: EventBus, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    """Nobody looks by himself: what ends, ends because PostgreSQL told it."""
    monkeypatch.setattr(standing, "_SECONDS", 600.0)
    async with serving(database_url, bus=bus) as api, listening(database_url, api, bus):
        yield api


async def log_out(_: Api, alice: Person, __: str) -> None:
    assert (await alice("POST", "/api/v1/logout")).status == 204


async def change_password(api: Api, alice: Person, _: str) -> None:
    other = await api.session_of("alice", alice.id)
    body = {"old_password": PASSWORD, "new_password": PASSWORD + " battery", "revoke_tokens": True}
    assert (await other("POST", "/api/v1/password", body)).status == 204


async def disable(api: Api, alice: Person, _: str) -> None:
    admin = await api.person("admin", is_admin=True)
    assert (await admin("PATCH", f"/api/v1/users/{alice.id}", {"disabled": True})).status == 200


async def revoke(_: Api, alice: Person, token_id: str) -> None:
    assert (await alice("DELETE", f"/api/v1/tokens/{token_id}")).status == 204


@pytest.mark.parametrize("ending", [log_out, change_password, disable])
async def test_the_stream_of_a_session(api: Api, ending: Callable[[Api, Person, str], Awaitable[None]]) -> None:
    """Ends with it; another user's goes on."""
    alice, bob = await api.person("alice"), await api.person("bob")
    mine = await bob.workspace()
    async with watching(alice) as stream, watching(bob) as bobs:
        await bobs.until(mine)
        await ending(api, alice, "")
        await _ends(stream)
        await bob("PATCH", f"/api/v1/workspaces/{mine}", {"memo": "still here"})
        await bobs.until(mine, memo="still here")


@pytest.mark.parametrize("ending", [revoke, change_password, disable])
async def test_the_stream_of_a_token(api: Api, ending: Callable[[Api, Person, str], Awaitable[None]]) -> None:
    alice = await api.person("alice")
    made = (await alice("POST", "/api/v1/tokens", {"name": "t"})).json
    async with watching(alice, Authorization=f"Bearer {made['token']}") as stream:
        await ending(api, alice, made["id"])
        await _ends(stream)


async def test_a_session_that_expires(api: Api) -> None:
    """Its own time is known: nobody has to tell."""
    alice = await api.person("alice")
    credentials = await api.deps.accounts.credentials("alice")
    assert credentials
    # As long as a busy machine may take to open the stream.
    await api.deps.sessions.open(credentials, hash_secret("short"), timedelta(seconds=5))
    async with watching(Person(api, alice.id, "alice", "short")) as stream:
        await _ends(stream)


async def test_nobody_tells(database_url: str, bus: EventBus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a leader that listens, the stream looks by itself; and it goes on while the login stands."""
    monkeypatch.setattr(standing, "_SECONDS", 0.1)
    async with serving(database_url, bus=bus) as api:
        alice, bob = await api.person("alice"), await api.person("bob")
        async with watching(alice) as stream, watching(bob) as bobs:
            await alice("POST", "/api/v1/logout")
            await _ends(stream)
            assert not bobs.content.at_eof()


async def _ends(stream: Stream) -> None:
    async with asyncio.timeout(SOON):
        await stream.content.read()
