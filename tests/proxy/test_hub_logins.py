"""PROMISES 32 and 34 on raw sockets: whose session it is, that it ends, what an answer gives away, and what a body may
not set."""

import json
from typing import Any
from uuid import uuid4

import pytest

from tests.api.world import PASSWORD
from tests.proxy.world import Person, Reply, Workspace, World
from tests.raw_http import request

JSON = ("Content-Type", "application/json")
CHOSEN = "chosen-by-somebody-else-and-long-enough-for-one"


async def _login(
    world: World, username: str, password: str = PASSWORD, *lines: tuple[str, str], query: str = ""
) -> Reply:
    body = json.dumps({"username": username, "password": password}).encode()
    (answer,) = await world.exchange_of("POST", f"/api/v1/login{query}", [("Host", world.host), JSON, *lines], body)
    return answer


def _opened(answer: Reply) -> str:
    """The session that was given out, in one cookie of the only kind there is."""
    (line,) = answer.all("set-cookie")
    cookie, *attributes = line.split("; ")
    assert {one.lower() for one in attributes} > {"httponly", "path=/", "samesite=lax"}, line
    assert not [one for one in attributes if one.lower().startswith("domain")], line
    name, _, secret = cookie.partition("=")
    assert name == "session"
    return secret


async def _whose(world: World, *cookies: str) -> str | None:
    """Who the API takes these cookies for."""
    lines = [("Host", world.host), *(("Cookie", cookie) for cookie in cookies)]
    (answer,) = await world.exchange_of("GET", "/api/v1/session", lines)
    return answer.json["user"]["username"] if answer.status == 200 else None


async def test_a_session_is_never_one_that_was_brought_along(world: World, alice: Person) -> None:
    """Wherever somebody managed to put an id of their own: what is given out is new, and theirs is worth nothing."""
    brought: list[tuple[list[tuple[str, str]], str]] = [
        ([("Cookie", f"session={CHOSEN}")], ""),
        ([("Cookie", f"session={CHOSEN}; session={CHOSEN}")], ""),
        ([("Cookie", f"session={CHOSEN}"), ("Cookie", f"session={CHOSEN}")], ""),
        ([("Cookie", f'session="{CHOSEN}"')], ""),
        ([("Cookie", f"__Host-session={CHOSEN}")], ""),
        ([("Cookie", f"session={CHOSEN}; Path=/; Secure")], ""),
        ([("Set-Cookie", f"session={CHOSEN}")], ""),
        ([("Session", CHOSEN), ("X-Session-Id", CHOSEN)], ""),
        ([], f"?session={CHOSEN}"),
        ([], f";session={CHOSEN}"),
    ]
    given = set()
    for lines, query in brought:
        answer = await _login(world, "alice", PASSWORD, *lines, query=query)
        if query.startswith(";"):
            assert answer.status == 404
            continue
        given.add(_opened(answer))
        assert CHOSEN not in str(answer)
        assert await _whose(world, f"session={CHOSEN}") is None
    assert len(given) == len(brought) - 1
    assert alice.secret not in given


async def test_a_planted_session_does_not_become_the_victims(world: World, alice: Person, bob: Person) -> None:
    """Bob puts his own, valid one into Alice's browser and waits for her to log in: he does not get hers."""
    hers = _opened(await _login(world, "alice", PASSWORD, ("Cookie", bob.cookie)))
    assert hers != bob.secret
    assert await _whose(world, bob.cookie) is None, "what she came with has ended"
    assert await _whose(world, f"session={hers}") == "alice"


async def test_of_two_cookies_one_counts_for_everything(
    world: World, alice: Person, bob: Person, ws: Workspace, at: str
) -> None:
    """The last, for API and proxy alike: no request is one person's to the one and another's to the other. And it is
    the one that a logout ends."""
    for cookies in (
        [f"{bob.cookie}; {alice.cookie}"],
        [bob.cookie, alice.cookie],
        [f"x=1; {bob.cookie}", f"{alice.cookie}; y=2"],
    ):
        lines = [("Host", world.host), *(("Cookie", cookie) for cookie in cookies)]
        assert await _whose(world, *cookies) == "alice", cookies
        assert [one.status for one in await world.exchange_of("GET", at, lines)] == [200], cookies
        backwards = [("Host", world.host), ("Cookie", f"{alice.cookie}; {bob.cookie}")]
        assert [one.status for one in await world.exchange_of("GET", at, backwards)] == [404]
    (out,) = await world.exchange_of(
        "POST", "/api/v1/logout", [("Host", world.host), ("Cookie", f"{bob.cookie}; {alice.cookie}"), JSON]
    )
    assert out.status == 204
    assert (await _whose(world, alice.cookie), await _whose(world, bob.cookie)) == (None, "bob")


async def test_logout_holds_for_the_very_next_request(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """Also for one that was sent together with it, on the same connection; to the API and to a workspace."""
    head = {"Host": world.host, "Cookie": alice.cookie}
    assert (await world.get(at, alice)).status == 200
    ws.connections.clear()
    mine = request("GET", "/api/v1/session", head)
    answers = await world.exchange(
        mine + request("POST", "/api/v1/logout", {**head, "Content-Type": "application/json"}) + mine
        + request("GET", at, head)
    )  # fmt: skip
    assert [one.status for one in answers] == [200, 204, 401, 401]
    (cleared,) = answers[1].all("set-cookie")
    assert cleared.startswith(('session=""; ', "session=; "))
    assert "max-age=0" in cleared.lower()
    assert not ws.has(b"GET ")


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
async def test_a_link_logs_nobody_out(world: World, alice: Person, method: str) -> None:
    lines = [("Host", world.host), ("Cookie", alice.cookie), ("X-HTTP-Method-Override", "POST")]
    answers = await world.exchange_of(method, "/api/v1/logout?_method=POST", lines)
    assert [one.status for one in answers] == [405]
    assert await _whose(world, alice.cookie) == "alice"


def _said(answer: Reply) -> tuple[int, list[tuple[str, str]], bytes]:
    """All of it but what is another one each time."""
    told = [(name.lower(), value) for name, value in answer.headers if name.lower() not in {"date", "x-request-id"}]
    return answer.status, told, answer.body


async def test_a_login_does_not_tell_who_exists(world: World, alice: Person, bob: Person) -> None:
    """Byte for byte the same, headers included: a wrong password, nobody, a disabled user, and what can't be a name.
    The same again when there were too many."""
    await world.deps.database.execute("UPDATE users SET disabled_at = now() WHERE id = $1", bob.id)
    guesses = [("alice", "wrong"), ("nobody", PASSWORD), ("bob", PASSWORD), ("ALICE", "wrong"), ("No Such Name!", "x")]
    first = [_said(await _login(world, *guess)) for guess in guesses]
    assert first == [first[0]] * len(guesses)
    assert first[0][0] == 401
    for username in ("alice", "nobody", "bob"):
        for _ in range(5):
            await _login(world, username, "wrong")
    locked = [await _login(world, username) for username in ("alice", "nobody", "bob")]
    assert {one.status for one in locked} == {429}
    assert len({_shape(one) for one in locked}) == 1


def _shape(answer: Reply) -> str:
    """Without its number of seconds, which runs down."""
    status, told, body = _said(answer)
    names = sorted(name for name, _ in told)
    return f"{status} {names} {b''.join(word for word in body.split() if not word.isdigit())!r}"


NAMING = (
    "/api/v1/workspaces/{id}",
    "/api/v1/workspaces/{id}/operations",
    "/api/v1/workspaces/{id}/explain",
    "/api/v1/workspaces/{id}/recover",
    "/api/v1/admin/workspaces/{id}",
    "/api/v1/admin/workspaces/{id}/operations",
    "/api/v1/tokens/{id}",
    "/api/v1/users/{id}",
    "/w/{id}/",
    "/w/{id}/x?y",
)


async def test_another_ones_is_like_none(world: World, alice: Person, bob: Person, ws: Workspace) -> None:
    """To the last header, on the API and on the proxy, for every method: nobody finds out which ids there are."""
    hers, none = await world.row(alice, ws.endpoint), str(uuid4())
    for path in NAMING:
        for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            head = [("Host", world.host), ("Cookie", bob.cookie), JSON]
            theirs, nobodys = [
                [_said(one) for one in await world.exchange_of(method, path.format(id=one_id), head, b"{}")]
                for one_id in (hers, none)
            ]
            assert len(theirs) == 1, (method, path)
            assert theirs == nobodys, (method, path)
            assert 400 <= theirs[0][0] < 500, (method, path)
    assert ws.connections == []


# What sets something that is not the caller's to set, in every spelling that some reader takes for it.
ASSIGNED = [
    '{"name": "x", "phase": "RUNNING"}',
    '{"name": "x", "\\u0070hase": "RUNNING"}',
    '{"name": "x", "Phase": "RUNNING"}',
    '{"name": "x", "phase ": "RUNNING"}',
    '{"name": "x", "owner_user_id": "{bob}"}',
    '{"name": "x", "ownerUserId": "{bob}"}',
    '{"name": "x", "owner": {"id": "{bob}"}}',
    '{"name": "x", "id": "{bob}"}',
    '{"name": "x", "archive_key": "{bob}/x/home.tar.zst"}',
    '{"name": "x", "endpoint": "169.254.169.254:80"}',
    '{"name": "x", "node": "elsewhere"}',
    '{"name": "x", "home_ctx": {"restore_marker": "k"}}',
    '{"name": "x", "error_reason": null}',
    '{"name": "x", "deleted_at": null}',
    '{"name": "x", "desired_state": "DELETED"}',
    '{"name": "x", "desired_state": ["RUNNING"]}',
    '{"name": "x", "__proto__": {"phase": "RUNNING"}}',
    '{"name": "x", "constructor": {"prototype": {"phase": "RUNNING"}}}',
    '{"name": {"phase": "RUNNING"}}',
    '[{"name": "x"}]',
    '{"workspace": {"name": "x", "phase": "RUNNING"}}',
]


@pytest.mark.parametrize("body", ASSIGNED)
async def test_bodies_set_what_they_may_and_nothing_else(world: World, alice: Person, bob: Person, body: str) -> None:
    """Refused as a whole, by create and by change: no row is made, and none is touched."""
    workspace = await world.row(alice, phase="STANDBY", desired_state="STANDBY")
    before = await _rows(world)
    head = [("Host", world.host), ("Cookie", alice.cookie), JSON]
    for method, path in (("POST", "/api/v1/workspaces"), ("PATCH", f"/api/v1/workspaces/{workspace}")):
        raw = body.replace("{bob}", str(bob.id)).encode()
        answers = await world.exchange_of(method, path, head, raw)
        assert [(one.status, one.code) for one in answers] == [(422, "invalid")], (method, answers)
    assert await _rows(world) == before


async def test_nothing_is_set_from_beside_the_body(world: World, alice: Person, bob: Person) -> None:
    """Not by the query, not by headers, not by another method's name; of a name that is given twice, one counts."""
    odd = f"?phase=RUNNING&owner_user_id={bob.id}&name=other&is_admin=true&_method=DELETE"
    head = [
        ("Host", world.host),
        ("Cookie", alice.cookie),
        JSON,
        ("X-HTTP-Method-Override", "DELETE"),
        ("X-User", "bob"),
    ]
    body = b'{"name": "first", "name": "second", "desired_state": "STANDBY"}'
    (made,) = await world.exchange_of("POST", f"/api/v1/workspaces{odd}", head, body)
    assert (made.status, made.json["name"], made.json["phase"]) == (201, "second", "PENDING")
    assert made.json["owner_user_id"] == str(alice.id)
    (posted,) = await world.exchange_of("POST", f"/api/v1/workspaces/{made.json['id']}{odd}", head, b"{}")
    assert posted.status == 405
    (changed,) = await world.exchange_of("PATCH", f"/api/v1/workspaces/{made.json['id']}{odd}", head, b'{"memo": "m"}')
    assert (changed.status, changed.json["name"], changed.json["phase"]) == (200, "second", "PENDING")


async def test_nobody_makes_themselves_admin(world: World, alice: Person, bob: Person) -> None:
    """By none of the routes that take a body."""
    change = {"old_password": PASSWORD, "new_password": "another long one"}
    bodies: list[tuple[str, str, Any, int]] = [
        ("POST", "/api/v1/users", {"username": "x", "password": "long enough", "is_admin": True}, 403),
        ("PATCH", f"/api/v1/users/{alice.id}", {"is_admin": True}, 404),
        ("PATCH", f"/api/v1/users/{bob.id}", {"password": "long enough"}, 404),
        ("POST", "/api/v1/password", {**change, "is_admin": True}, 422),
        ("POST", "/api/v1/password", {**change, "user_id": str(bob.id)}, 422),
        ("POST", "/api/v1/login", {"username": "alice", "password": PASSWORD, "is_admin": True}, 422),
        ("POST", "/api/v1/tokens", {"name": "t", "user_id": str(bob.id)}, 422),
        ("POST", "/api/v1/tokens", {"name": "t", "is_admin": True}, 422),
    ]
    for method, path, body, expected in bodies:
        head = [("Host", world.host), ("Cookie", alice.cookie), JSON, ("X-Admin", "true")]
        answers = await world.exchange_of(method, path, head, json.dumps(body).encode())
        assert [one.status for one in answers] == [expected], (method, path, body)
    assert await world.deps.database.fetchval("SELECT count(*) FROM users WHERE is_admin") == 0
    assert await world.deps.database.fetchval("SELECT count(*) FROM users") == 2
    assert await world.deps.database.fetchval("SELECT count(*) FROM api_tokens") == 0


async def _rows(world: World) -> list[str]:
    return [row[0] for row in await world.deps.database.fetch("SELECT w::text FROM workspaces w ORDER BY id")]
