"""PROMISE 33 on raw sockets: what other sites make a browser send changes nothing, with a cookie or without."""

import json

import pytest

from starter.api.logins import hash_secret
from tests.api.world import PASSWORD
from tests.proxy.world import Person, World
from tests.raw_http import Reply

Lines = list[tuple[str, str]]

JSON: Lines = [("Content-Type", "application/json")]
# {own} is this origin, {port} its port. None of them is a proof; some are two halves of one.
FORGED: dict[str, Lines] = {
    "another site": [("Origin", "https://evil.example"), *JSON],
    "null": [("Origin", "null"), *JSON],
    "empty": [("Origin", ""), *JSON],
    "another port": [("Origin", "http://127.0.0.1:1"), *JSON],
    "no port": [("Origin", "http://127.0.0.1"), *JSON],
    "a port that goes on": [("Origin", "{own}0"), *JSON],
    "another scheme": [("Origin", "https://127.0.0.1:{port}"), *JSON],
    "another name of the machine": [("Origin", "http://localhost:{port}"), *JSON],
    "a suffix": [("Origin", "{own}.evil.example"), *JSON],
    "a prefix": [("Origin", "http://evil-127.0.0.1:{port}"), *JSON],
    "a user of another site": [("Origin", "{own}@evil.example"), *JSON],
    "another user": [("Origin", "http://evil@127.0.0.1:{port}"), *JSON],
    "a path": [("Origin", "{own}/"), *JSON],
    "a query": [("Origin", "{own}?"), *JSON],
    "a fragment": [("Origin", "{own}#"), *JSON],
    "a tab inside": [("Origin", "http://127.0.0.1:\t{port}"), *JSON],
    "no address": [("Origin", "http://[::1"), *JSON],
    "no port number": [("Origin", "http://127.0.0.1:x"), *JSON],
    "a list": [("Origin", "{own} https://evil.example"), *JSON],
    "a list by commas": [("Origin", "{own}, https://evil.example"), *JSON],
    "twice": [("Origin", "{own}"), ("Origin", "{own}"), *JSON],
    "twice, ours first": [("Origin", "{own}"), ("Origin", "https://evil.example"), *JSON],
    "twice, ours last": [("Origin", "https://evil.example"), ("origin", "{own}"), *JSON],
    "another site by fetch metadata": [("Sec-Fetch-Site", "cross-site"), *JSON],
    "a sibling by fetch metadata": [("Sec-Fetch-Site", "same-site"), *JSON],
    "metadata in capitals": [("Sec-Fetch-Site", "SAME-ORIGIN"), *JSON],
    "metadata twice": [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Site", "same-origin"), *JSON],
    "metadata against the Origin": [("Sec-Fetch-Site", "cross-site"), ("Origin", "{own}"), *JSON],
    "a bearer of somebody else's": [("Origin", "null"), ("Authorization", "Bearer x"), *JSON],
    "a bearer that looks like ours": [("Origin", "null"), ("Authorization", "Bearer xchub_x"), *JSON],
    "basic": [("Origin", "null"), ("Authorization", "Basic chub_x"), *JSON],
    "forwarded by nobody": [("Origin", "https://hub.example"), ("X-Forwarded-Host", "hub.example"), *JSON],
    "forwarded by nobody, by HTTPS": [("Origin", "https://127.0.0.1:{port}"), ("X-Forwarded-Proto", "https"), *JSON],
    "another method by name": [("Origin", "null"), ("X-HTTP-Method-Override", "GET"), *JSON],
    "a text": [("Content-Type", "text/plain")],
    "a form": [("Content-Type", "application/x-www-form-urlencoded")],
    "a form in parts": [("Content-Type", "multipart/form-data; boundary=x")],
    "a text that names JSON": [("Content-Type", "text/plain; application/json")],
    "a text before JSON": [("Content-Type", "text/plain"), *JSON],
    "no type": [],
}
OURS: dict[str, Lines] = {
    "a program": JSON,
    "an older browser": [("Origin", "{own}"), *JSON],
    "a browser": [("Origin", "{own}"), ("Sec-Fetch-Site", "same-origin"), *JSON],
    "a person": [("Sec-Fetch-Site", "none"), *JSON],
    "a type with more to it": [("Content-Type", "Application/JSON; charset=utf-8")],
}


async def _post(world: World, path: str, body: object, lines: Lines, cookie: str | None = None) -> Reply:
    given = [(name, value.format(own=world.origin, port=world.port)) for name, value in lines]
    cookies = [("Cookie", cookie)] if cookie else []
    (answer,) = await world.exchange_of(
        "POST", path, [("Host", world.host), *cookies, *given], json.dumps(body).encode()
    )
    return answer


@pytest.mark.parametrize("how", FORGED)
async def test_another_site_changes_nothing(world: World, alice: Person, how: str) -> None:
    """Neither by the person's session nor without any; nor does it log anybody in or out."""
    login = {"username": "alice", "password": PASSWORD}
    for cookie in (alice.cookie, None, "session=none", f"{alice.cookie}; other=1"):
        for path, body in (
            ("/api/v1/workspaces", {"name": "forged"}),
            ("/api/v1/login", login),
            ("/api/v1/logout", {}),
        ):
            answer = await _post(world, path, body, FORGED[how], cookie)
            assert (answer.status, answer.code, answer.all("set-cookie")) == (403, "cross_site", []), (path, cookie)
    assert await world.deps.database.fetchval("SELECT count(*) FROM workspaces") == 0
    assert await world.deps.database.fetchval("SELECT count(*) FROM sessions") == 1


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
async def test_no_other_method_of_another_site(world: World, alice: Person, method: str) -> None:
    """What a browser would ask for first is never granted, and what comes all the same is refused."""
    workspace = await world.row(alice, phase="STANDBY", desired_state="STANDBY")
    path = f"/api/v1/workspaces/{workspace}"
    for origin in ("https://evil.example", "null", f"{world.origin}.evil.example"):
        head = [("Host", world.host), ("Cookie", alice.cookie), ("Origin", origin)]
        (asked,) = await world.exchange_of("OPTIONS", path, [*head, ("Access-Control-Request-Method", method)])
        (done,) = await world.exchange_of(method, path, [*head, *JSON], b'{"memo": "forged"}')
        assert (asked.status, done.status, done.code) == (405, 403, "cross_site")
        assert not [name for name, _ in [*asked.headers, *done.headers] if name.lower().startswith("access-control")]
    assert await world.desired(workspace) == "STANDBY"


async def test_another_site_reads_nothing(world: World, alice: Person) -> None:
    """An answer to a GET is no browser's to show to another origin."""
    for path in ("/", "/api/v1/session", "/api/v1/workspaces", "/api/openapi.json", "/health/live"):
        for origin in ("https://evil.example", "null", world.origin):
            head = [("Host", world.host), ("Cookie", alice.cookie), ("Origin", origin)]
            (answer,) = await world.exchange_of("GET", path, head)
            assert not [name for name, _ in answer.headers if name.lower().startswith("access-control")], path
            assert answer.get("cross-origin-resource-policy") == "same-origin", path
            assert answer.get("x-frame-options") == "DENY", path


@pytest.mark.parametrize("how", OURS)
async def test_what_is_ours_passes(world: World, alice: Person, how: str) -> None:
    """The same requests by whoever may make them: it is not for another reason that the others are refused."""
    body = {"name": "mine", "desired_state": "STANDBY"}
    assert (await _post(world, "/api/v1/workspaces", body, OURS[how], alice.cookie)).status == 201
    assert (await _post(world, "/api/v1/workspaces", body, OURS[how])).status == 401
    login = {"username": "alice", "password": PASSWORD}
    assert (await _post(world, "/api/v1/login", login, OURS[how])).status == 200
    assert (await _post(world, "/api/v1/logout", {}, OURS[how], alice.cookie)).status == 204


async def test_a_token_is_let_in_alone(world: World, alice: Person, bob: Person) -> None:
    """No site can make a browser send one, so it needs no proof of origin; the cookie beside it counts for nothing."""
    token = "chub_" + "t" * 43
    await world.deps.tokens.create(bob.id, "his", hash_secret(token))
    forged: Lines = [("Origin", "https://evil.example"), ("Authorization", f"Bearer {token}"), *JSON]
    made = await _post(world, "/api/v1/workspaces", {"name": "his", "desired_state": "STANDBY"}, forged, alice.cookie)
    assert (made.status, made.json["owner_user_id"]) == (201, str(bob.id))
    assert (await _post(world, "/api/v1/logout", {}, forged, alice.cookie)).status == 204
    assert (await world.get("/api/v1/session", alice)).status == 200
    bad: Lines = [*forged[:1], ("Authorization", "Bearer chub_made-up"), *JSON]
    assert (await _post(world, "/api/v1/workspaces", {"name": "forged"}, bad, alice.cookie)).status == 401
