"""PROMISE 33, and what browsers are told."""

from urllib.parse import urlsplit

import pytest
from fastapi.routing import iter_route_contexts
from starlette.datastructures import Headers

from starter.api.same_origin import is_ours
from tests.api.world import NOBODY, PASSWORD, Api, Person

PATH = "/api/v1/workspaces"


FORGED: list[dict[str, str]] = [
    {"Sec_Fetch_Site": "cross-site"},
    {"Sec_Fetch_Site": "same-site"},
    {"Sec_Fetch_Site": "SAME-ORIGIN"},
    {"Sec_Fetch_Site": "cross-site", "Origin": "{own}"},
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "https://evil.example", "Authorization": "Basic YTpi"},
    {"Origin": "https://evil.example", "Authorization": "Bearer x"},
    {"Sec_Fetch_Site": "cross-site", "Authorization": "bearer xchub_"},
    {"Origin": ""},
    {"Origin": "{own}.evil.example"},
    {"Origin": "http://evil.example@127.0.0.1:{port}"},
    {"Origin": "https://127.0.0.1:{port}"},
    {"Origin": "http://127.0.0.1"},
    {"Origin": "http://127.0.0.1:1"},
    {"Origin": "http://localhost:{port}"},
    {"Origin": "{own}/"},
    {"Origin": "{own}?x"},
    {"Origin": "http://[::1"},
    {"Origin": "http://127.0.0.1:99999"},
    {"Content_Type": "text/plain"},
    {"Content_Type": "application/x-www-form-urlencoded"},
    {"Content_Type": "multipart/form-data; boundary=x"},
    {"Content_Type": "text/plain; application/json"},
    {"Content_Type": ""},
]


async def test_cross_site_requests_are_refused(api: Api, alice: Person) -> None:
    """A request that another site made the browser send changes nothing, whatever it claims."""
    port = urlsplit(api.url).port
    for headers in FORGED:
        forged = {name: value.format(own=api.url, port=port) for name, value in headers.items()}
        answer = await alice("POST", PATH, {"name": "forged"}, **forged)
        assert (answer.status, answer.code) == (403, "cross_site"), headers
        login = await api.login("alice", PASSWORD, **forged)
        assert (login.status, login.code) == (403, "cross_site"), headers
        assert "Set-Cookie" not in login.headers
    assert (await alice("GET", PATH)).json["total"] == 0


async def test_every_unsafe_route_is_guarded(api: Api, alice: Person) -> None:
    """No unsafe route answers another site's request, also none that is added later."""
    checked = 0
    for route in iter_route_contexts(api.app.routes):
        for method in set(route.methods or ()) - {"GET", "HEAD", "OPTIONS"}:
            path = str(route.path).format(workspace_id=NOBODY, token_id=NOBODY, user_id=NOBODY, node="nowhere")
            answer = await alice(method, path, {}, Origin="https://evil.example")
            assert (answer.status, answer.code) == (403, "cross_site"), (method, path)
            checked += 1
    assert checked >= 10


@pytest.mark.parametrize(
    "headers",
    [{"Sec_Fetch_Site": "same-origin"}, {"Sec_Fetch_Site": "none"}, {"Origin": "{own}"}, {}],
    ids=["browser", "person", "older browser", "curl"],
)
async def test_our_own_requests_pass(api: Api, alice: Person, headers: dict[str, str]) -> None:
    """Our pages, and curl with a cookie and JSON, can do everything."""
    given = {name: value.format(own=api.url) for name, value in headers.items()}
    made = await alice("POST", PATH, {"name": "one", "desired_state": "STANDBY"}, **given)
    assert made.status == 201
    one = f"{PATH}/{made.json['id']}"
    assert (await alice("PATCH", one, {"memo": "x"}, **given)).status == 200
    assert (await alice("POST", f"{one}/recover", **given)).status == 409
    assert (await alice("DELETE", one, **given)).status == 204


async def test_tokens_are_exempt(api: Api, alice: Person) -> None:
    """No site can make a browser send a bearer token: a program that has one sends what it likes."""
    secret = (await alice("POST", "/api/v1/tokens", {"name": "t"})).json["token"]
    headers = {"Authorization": f"Bearer {secret}", "Origin": "https://elsewhere.example"}
    assert (await api("POST", PATH, {"name": "one", "desired_state": "STANDBY"}, **headers)).status == 201


async def test_a_token_does_not_lend_itself_to_the_cookie(api: Api, alice: Person) -> None:
    """Whoever is let in for a token acts by that token alone: the session of the cookie beside it stays."""
    headers = {"Authorization": "Bearer chub_made-up", "Origin": "https://evil.example"}
    assert (await alice("POST", PATH, {"name": "forged"}, **headers)).status == 401
    assert (await alice("POST", "/api/v1/logout", **headers)).status == 204
    assert (await alice("GET", "/api/v1/session")).status == 200


def test_default_ports() -> None:
    """An Origin leaves out the port that its scheme has by itself; a Host may name it."""
    for scheme, origin, host, expected in [
        ("https", "https://hub.example", "hub.example", True),
        ("https", "https://hub.example", "hub.example:443", True),
        ("https", "https://HUB.example", "hub.EXAMPLE", True),
        ("http", "https://hub.example", "hub.example", False),
        ("https", "http://hub.example", "hub.example", False),
        ("https", "https://hub.example:8443", "hub.example", False),
        ("http", "http://[::1]:8000", "[::1]:8000", True),
        ("http", "http://hub.example", "", False),
    ]:
        assert is_ours("POST", scheme, Headers({"origin": origin, "host": host})) is expected, (origin, host)


def test_headers_twice() -> None:
    """Two Origins or two Sec-Fetch-Sites prove nothing."""
    host = (b"host", b"hub")
    twice = [(b"origin", b"http://hub"), (b"origin", b"http://hub")]
    assert not is_ours("POST", "http", Headers(raw=[host, *twice]))
    twice = [(b"sec-fetch-site", b"same-origin"), (b"sec-fetch-site", b"cross-site")]
    assert not is_ours("POST", "http", Headers(raw=[host, *twice]))


async def test_no_cors(api: Api, alice: Person) -> None:
    """No preflight is granted, no answer is readable by another site."""
    preflight = await api("OPTIONS", PATH, Origin="https://evil.example", Access_Control_Request_Method="DELETE")
    read = await alice("GET", PATH, Origin="https://evil.example")
    assert preflight.status == 405
    for answer in (preflight, read):
        assert not [name for name in answer.headers if name.lower().startswith("access-control-")]


async def test_security_headers(api: Api) -> None:
    """Every answer, also an error, tells browsers not to sniff, frame, embed or keep it."""
    for path in ("/api/v1/session", "/api/v1/login", "/nowhere", "/health/live"):
        headers = (await api("GET", path)).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["Cache-Control"] == "no-store"
        assert "Server" not in headers


async def test_a_form_of_another_site(api: Api, alice: Person) -> None:
    """What an HTML form really sends, byte for byte, with a body that reads as JSON."""
    headers = {"Host": api.raw.host, "Cookie": f"session={alice.secret}", "Content-Type": "text/plain"}
    answer = await api.raw.send("POST", PATH, headers, b'{"name": "forged", "description": "="}')
    assert (answer.status, answer.code) == (403, "cross_site")
