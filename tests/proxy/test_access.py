"""Who gets to a workspace: PROMISES 27, 28 and 33, logout, and what strangers are told."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from starter.api.logins import hash_secret
from starter.proxy import identities
from tests.proxy.world import Person, Workspace, World, serving, until

HANDSHAKE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec_WebSocket_Version": "13",
}


async def test_nobody_unknown_reaches_a_workspace(
    world: World, alice: Person, bob: Person, ws: Workspace, at: str
) -> None:
    """No TCP connection is made before it is known that the owner asks (PROMISE 27)."""
    await world.deps.database.execute(
        "INSERT INTO sessions (token_hash, user_id, expires_at) VALUES ($1, $2, now() - interval '1 second')",
        hash_secret("expired"),
        alice.id,
    )
    strangers: list[dict[str, str]] = [
        {},
        {"Cookie": "session=wrong"},
        {"Cookie": "session=expired"},
        {"Cookie": bob.cookie},
        {"Cookie": f"__Host-session={alice.secret}"},
        {"Cookie": f"SESSION={alice.secret}"},
        {"Cookie": f"x={alice.secret}"},
        {"Authorization": f"Bearer {alice.secret}"},
        {"Authorization": "Bearer chub_wrong", "Cookie": alice.cookie},
        {"Authorization": f"Basic {alice.secret}"},
        {"X_Forwarded_User": "alice"},
    ]
    for stranger in strangers:
        expected = 404 if stranger.get("Cookie") == bob.cookie else 401
        for method in ("GET", "HEAD", "OPTIONS"):
            assert (await world.get(at, None, method, **stranger)).status == expected, stranger
        handshake = await world.get(at, **{**HANDSHAKE, **stranger}, Origin=world.origin)
        assert handshake.status == expected, stranger
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            answer = await world.get(at, None, method, b"{}", Content_Type="application/json", **stranger)
            assert answer.status == expected, stranger
    assert ws.connections == []


async def test_a_person_is_sent_to_log_in(world: World, alice: Person, at: str) -> None:
    """And back to where it wanted to go; a program is told 401."""
    answer = await world.open(f"{at}a?b=c&d", None)
    assert answer.status == 303
    assert answer.get("location") == f"/?next={at.replace('/', '%2F')}a%3Fb%3Dc%26d"
    answer = await world.get(at)
    assert answer.status == 401
    assert b'"unauthenticated"' in answer.body
    assert answer.get("www-authenticate")


async def test_what_is_not_there(world: World, alice: Person, bob: Person, at: str) -> None:
    """Another's, a deleted one, an unknown one and no id at all: the same 404, in words for a person."""
    deleted = await world.row(alice, phase="DELETED", desired_state="DELETED", **await _deleted(world))
    paths = [at, f"/w/{deleted}/", "/w/0b8f6f0e-6a7b-4c7e-9d3a-2f1e5c4b3a21/", "/w/nothing/", "/w/"]
    for path, person in zip(paths, (bob, alice, alice, alice, alice), strict=True):
        answer = await world.open(path, person)
        assert answer.status == 404
        assert b"There is no such workspace" in answer.body
        assert b'"not_found"' in (await world.get(path, person)).body


async def test_websockets_show_their_origin(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """Only the own one passes (PROMISE 28)."""
    port = world.port
    for origin in (
        None,
        "",
        "null",
        "https://evil.example",
        f"https://127.0.0.1:{port}",
        "http://127.0.0.1",
        f"http://127.0.0.1:{port + 1}",
        f"http://127.0.0.1:{port}.evil.example",
        f"http://127.0.0.1:{port}@evil.example",
        f"http://evil.example@127.0.0.1:{port}",
        f"http://evil-127.0.0.1:{port}",
        f"http://localhost:{port}",
        f"ws://127.0.0.1:{port}",
        f"http://127.0.0.1:{port}/",
        f"http://127.0.0.1:{port} http://evil.example",
        f"http://127.0.0.1:{port}, http://evil.example",
        "http://[::1",
    ):
        headers = HANDSHAKE if origin is None else {**HANDSHAKE, "Origin": origin}
        answer = await world.get(at, alice, **headers)
        assert (answer.status, b"cross_site" in answer.body) == (403, True), origin
    token = "chub_" + "o" * 43
    await world.deps.tokens.create(alice.id, "t", hash_secret(token))
    assert (await world.get(at, Authorization=f"Bearer {token}", **HANDSHAKE)).status == 403
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in HANDSHAKE.items()]
    twice = "\r\n".join(
        [
            f"GET {at} HTTP/1.1",
            f"Host: {world.host}",
            f"Cookie: {alice.cookie}",
            *lines,
            *[f"Origin: {world.origin}"] * 2,
            "",
            "",
        ]
    )
    assert b" 403 " in (await world.raw(twice.encode()))[:14]
    assert ws.connections == []


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"},
        {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "cors"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"},
    ],
)
async def test_other_sites_read_nothing(
    world: World, alice: Person, ws: Workspace, at: str, headers: dict[str, str]
) -> None:
    """Images, scripts, frames and fetches of another site don't get to a workspace; a link that is followed does."""
    assert (await world.get(at, alice, **headers)).status == 403
    assert ws.connections == []
    assert (await world.open(at, alice, Sec_Fetch_Site="cross-site")).status == 200


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
async def test_another_origin_reads_nothing(world: World, alice: Person, ws: Workspace, at: str, method: str) -> None:
    """An Origin that is not ours is refused with the safest of methods too, whatever else the request claims to be.
    The own one, which a script may send, and none at all pass; so does a program that has a token.
    """
    claims: list[dict[str, str]] = [
        {},
        {"Sec_Fetch_Site": "same-origin"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"},
        {"Authorization": "Bearer x"},
    ]
    port = world.port
    for origin in ("https://evil.example", "null", "", f"http://127.0.0.1:{port + 1}", f"{world.origin}.evil.example"):
        for claim in claims:
            assert (await world.get(at, alice, method, Origin=origin, **claim)).status == 403, (origin, claim)
    assert ws.connections == []
    assert (await world.get(at, alice, method, Origin=world.origin)).status == 200
    assert (await world.get(at, alice, method)).status == 200
    token = "chub_" + "r" * 43
    await world.deps.tokens.create(alice.id, "t", hash_secret(token))
    headers = {"Authorization": f"Bearer {token}", "Origin": "https://elsewhere.example"}
    assert (await world.get(at, None, method, **headers)).status == 200


async def test_other_sites_change_nothing(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """The API's same-origin rule holds here too: no form and no fetch of another site gets through (PROMISE 33)."""
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        for headers in (
            {"Sec_Fetch_Site": "cross-site"},
            {"Sec_Fetch_Site": "same-site"},
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            # The workspace's own bearer: it is the cookie that lets this in, so it is no exemption.
            {"Origin": "https://evil.example", "Authorization": "Bearer x"},
            {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"},
        ):
            assert (await world.get(at, alice, method, b"x=y", **headers)).status == 403
    assert (await world.get(at, alice, "POST", b"x=y", Content_Type="text/plain")).status == 403
    assert ws.connections == []
    assert (await world.get(at, alice, "POST", b"x=y", Origin=world.origin)).status == 200
    assert (await world.get(at, alice, "POST", b"x=y", Sec_Fetch_Site="same-origin")).status == 200


@pytest.mark.usefixtures("only_if_told")
async def test_logout_ends_it_at_once(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """In this process the very next request is refused, and what was open is cut off."""
    held = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.read(65536)
        if b"/stream" in head:
            writer.write(b"HTTP/1.1 200 OK\r\n\r\nbeginning")
            await held.wait()
        writer.write(ws.answer)

    ws.handler = handler
    async with world.connect() as (reader, writer):
        writer.write(f"GET {at}stream HTTP/1.1\r\nHost: {world.host}\r\nCookie: {alice.cookie}\r\n\r\n".encode())
        await reader.readuntil(b"beginning")
        assert (await world.get(at, alice)).status == 200
        answer = await world.get("/api/v1/logout", alice, "POST", Content_Type="application/json")
        assert answer.status == 204
        assert (await world.get(at, alice)).status == 401
        assert await asyncio.wait_for(reader.read(), 30) == b"\r\n"
    held.set()


async def test_asking_in_vain(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """Requests that are refused don't make the proxy forget who is logged in: that would cost a query each."""
    assert (await world.get(at, alice)).status == 200
    before = dict(world.proxy.identities._known)
    body = b'{"username": "alice", "password": "wrong"}'
    assert (await world.get("/api/v1/login", None, "POST", body, Content_Type="application/json")).status == 401
    assert (await world.get("/api/v1/users", None, "POST", b"{}", Content_Type="application/json")).status == 401
    assert (await world.get("/nowhere", None, "POST", b"{}", Content_Type="application/json")).status == 404
    assert before
    assert world.proxy.identities._known == before


async def test_logout_elsewhere(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """A session that another process ended passes for five seconds at most, open connections included."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.read(65536)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nbeginning" if b"/stream" in head else ws.answer)
        await reader.read(1)

    ws.handler = handler
    async with world.connect() as (reader, writer):
        writer.write(f"GET {at}stream HTTP/1.1\r\nHost: {world.host}\r\nCookie: {alice.cookie}\r\n\r\n".encode())
        await reader.readuntil(b"beginning")
        assert (await world.get(at, alice)).status == 200
        await world.deps.sessions.close(hash_secret(alice.secret))
        too_late = asyncio.create_task(_worked_for(6))
        await asyncio.wait_for(reader.read(), 60)
        assert not too_late.done()
        too_late.cancel()

    async def refused() -> bool:
        return (await world.get(at, alice)).status == 401

    await until(refused, 6)


async def test_an_expiring_session(
    world: World, alice: Person, ws: Workspace, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is remembered of it doesn't outlive it."""
    # Nothing but its end has the proxy ask again.
    monkeypatch.setattr(identities, "SECONDS", 600.0)
    credentials = await world.deps.accounts.credentials("alice")
    assert credentials
    cookie = ""

    async def let_in() -> bool:
        """A machine that stands still for a moment outlasts a session of a second: then by another one."""
        nonlocal cookie
        secret = uuid4().hex
        await world.deps.sessions.open(credentials, hash_secret(secret), timedelta(seconds=1))
        cookie = f"session={secret}"
        return (await world.get(at, Cookie=cookie)).status == 200

    async def refused() -> bool:
        return (await world.get(at, Cookie=cookie)).status == 401

    await until(let_in)
    await until(refused)


async def test_a_token(world: World, alice: Person, bob: Person, ws: Workspace, at: str) -> None:
    """Lets its user in, and is worth nothing once it is revoked here."""
    made = await world.get("/api/v1/tokens", alice, "POST", b'{"name": "t"}', Content_Type="application/json")
    token = made.body.partition(b'"token":"')[2].partition(b'"')[0].decode()
    token_id = made.body.partition(b'"id":"')[2].partition(b'"')[0].decode()
    headers = {"Authorization": f"Bearer {token}"}
    assert (await world.get(at, **headers)).status == 200
    assert (await world.get(at, None, "POST", b"x", Origin="https://elsewhere", **headers)).status == 200
    assert (await world.get(f"/api/v1/tokens/{token_id}", alice, "DELETE")).status == 204
    assert (await world.get(at, **headers)).status == 401


async def test_behind_a_trusted_proxy(database_url: str, redis_url: str, ws: Workspace) -> None:
    """The cookie of HTTPS, the Origin of HTTPS, and the address that the trusted proxy tells."""
    async with serving(database_url, redis_url, trusted="127.0.0.1") as world:
        alice = await world.person("alice")
        at = f"/w/{await world.row(alice, ws.endpoint)}/"
        headers = {"X_Forwarded_Proto": "https", "X_Forwarded_For": "6.6.6.6, 203.0.113.9"}
        cookie = f"__Host-session={alice.secret}"
        answer = await world.get(at, None, "POST", b"x", Origin=f"https://{world.host}", Cookie=cookie, **headers)
        assert answer.status == 200
        assert ws.header("x-forwarded-for") == ["203.0.113.9"]
        assert ws.header("x-forwarded-proto") == ["https"]
        assert ws.header("cookie") == []
        assert (await world.get(at, alice, **headers)).status == 401


async def _worked_for(seconds: float) -> None:
    """As long as this loop is at work: a machine that stands still holds up the proxy, which runs in it, as well."""
    for _ in range(round(seconds / 0.05)):
        await asyncio.sleep(0.05)


async def _deleted(world: World) -> dict[str, Any]:
    return {"deleted_at": await world.deps.database.fetchval("SELECT now()")}
