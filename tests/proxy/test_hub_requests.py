"""PROMISE 29 for the hub itself: the API and the dashboard are read by a second parser behind the proxy's own.

Whatever is sent to them is refused in so many words or is one request. So it is never two, never an error of the
server, and never one for which nobody would be let in.
"""

import asyncio

import pytest

from tests.proxy.smuggling import CASES, EVIL, FIRST, HANDSHAKE
from tests.proxy.world import Person, World
from tests.raw_http import replies, request
from tests.transfer.tars import in_pieces

PLACES = ("/api/v1/workspaces", "/api/v1/nothing", "/", "/health/live")
# As in `CASES`, which are for workspaces: what means something else, or only something, to the hub.
HUB_CASES: dict[str, tuple[str, int | None]] = {
    **CASES,
    "absolute form": (CASES["absolute form"][0], None),
    "absolute form of another host": (CASES["absolute form of another host"][0], None),
    "asterisk form": (CASES["asterisk form"][0], None),
    "no authority in the target": ("GET http:///x HTTP/1.1\r\nHost: {host}\r\n\r\n", 400),
    "no path in the target": ("GET http://{host} HTTP/1.1\r\nHost: {host}\r\n\r\n", 400),
    "half an address in the target": ("GET http://[::1{at} HTTP/1.1\r\nHost: {host}\r\n\r\n", 400),
    "a target that is a word": ("GET x HTTP/1.1\r\nHost: {host}\r\n\r\n", 400),
    "a target that is a query": ("GET ?x=1 HTTP/1.1\r\nHost: {host}\r\n\r\n", 400),
    "a target that is a fragment": ("GET # HTTP/1.1\r\nHost: {host}\r\n\r\n", 400),
    "a method in small letters": ("get {at} HTTP/1.1\r\nHost: {host}\r\n\r\n", 400),
    "a method that nobody knows": ("EVIL {at} HTTP/1.1\r\nHost: {host}\r\n\r\n", 400),
    "a method that nobody knows, and a body": (
        FIRST.replace("POST", "EVIL") + "Content-Length: 5\r\n\r\nhello" + EVIL,
        400,
    ),
    "a method that nobody knows, and a request": ("EVIL {at} HTTP/1.1\r\nHost: {host}\r\n\r\n" + EVIL, 400),
    "a method of too many letters": ("A" * 33 + " {at} HTTP/1.1\r\nHost: {host}\r\n\r\n", 400),
    "the preface of HTTP/2": ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "TLS": ("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    "a Host that is none": ("GET {at} HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
    "a Host with a path": ("GET {at} HTTP/1.1\r\nHost: {host}/evil\r\n\r\n", 400),
    "two Authorizations": (FIRST + "Authorization: Bearer x\r\nAuthorization: Bearer y\r\n\r\n", 400),
    "a WebSocket": (HANDSHAKE + "\r\n", 404),
    "a WebSocket, and Connection twice": (HANDSHAKE + "Connection: x\r\n\r\n", 404),
    "a WebSocket by POST": (HANDSHAKE.replace("GET", "POST") + "Content-Type: application/json\r\n\r\n", None),
    "an Expect of something else": (FIRST + "Expect: evil\r\nContent-Length: 2\r\n\r\n{{}}", None),
    "an Expect of 100": (FIRST + "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{{}}", None),
    "two Content-Types": (FIRST + "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{{}}", None),
    "two Cookies": ("GET {at} HTTP/1.1\r\nHost: {host}\r\n{auth}{auth}\r\n", None),
    "ten thousand headers": ("GET {at} HTTP/1.1\r\nHost: {host}\r\n" + "a:\r\n" * 10_000 + "\r\n", None),
    "HTTP/1.0 without a Host": ("GET {at} HTTP/1.0\r\n\r\n" + EVIL, None),
    "HTTP/1.0 that wants to stay": ("GET {at} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" + EVIL, None),
}


@pytest.mark.parametrize("way", ["at once", "byte by byte"])
@pytest.mark.parametrize("at", PLACES)
async def test_refused_or_one_request(world: World, alice: Person, at: str, way: str) -> None:
    """Each case on a connection of its own."""
    for name, (case, expected) in HUB_CASES.items():
        if way == "byte by byte" and len(case) > 1000:
            continue
        world.seen.clear()
        raw = case.format(at=at, host=world.host, auth=f"Cookie: {alice.cookie}\r\n").encode("latin-1")
        answers = await world.exchange(*(in_pieces(raw, 1) if way == "byte by byte" else [raw]))
        assert len(answers) == 1, (name, answers)
        if expected is None:
            assert (answers[0].status < 500, len(world.seen)) == (True, 1), (name, answers, world.seen)
        elif name.startswith(("chunk ", "trailer")):
            # That a body is bad turns out after its head has passed: there may be an answer by then.
            assert answers[0].status == 400 or (way == "byte by byte" and answers[0].status < 500), (name, answers)
            assert world.seen in ([], [f"POST {at}"]), (name, world.seen)
        else:
            assert (answers[0].status, answers[0].code, world.seen) == (expected, "bad_request", []), (name, answers)


@pytest.mark.parametrize(
    "rest", ["0" * 16 + "\r\n\r\n", "0;" + "x" * 5000 + "\r\n\r\n", "0\r\nX: " + "y" * 5000 + "\r\n\r\n", "-1\r\n"]
)
@pytest.mark.parametrize("at", PLACES)
async def test_a_bad_end_of_what_was_answered_already(world: World, alice: Person, at: str, rest: str) -> None:
    """Another site's request is refused before its body has come. What then comes is that body, however it ends: a
    reader behind us that is less strict does not get to see a request in it."""
    head = FIRST.format(at=at, host=world.host, auth=f"Cookie: {alice.cookie}\r\n") + (
        "Sec-Fetch-Site: cross-site\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    async with world.connect() as (reader, writer):
        writer.write(head.encode())
        refused = await reader.readuntil(b"}}")
        writer.write((rest + EVIL).encode())
        assert await asyncio.wait_for(reader.read(), 30) == b""
    assert [one.code for one in replies(refused)] == ["cross_site"]
    assert world.seen == [f"POST {at}"]


async def test_what_is_refused_did_nothing(world: World, alice: Person) -> None:
    """A body that is whole for a reader who is less strict: nothing is made of it."""
    body = '{"name": "evil", "desired_state": "STANDBY"}'
    chunks = f"{len(body):x}\r\n{body}\r\n" + "0" * 16 + "\r\n\r\n"
    head = FIRST.format(at=PLACES[0], host=world.host, auth=f"Cookie: {alice.cookie}\r\n")
    answers = await world.exchange(f"{head}Transfer-Encoding: chunked\r\n\r\n{chunks}".encode())
    assert [(one.status, one.code) for one in answers] == [(400, "bad_request")]
    assert await world.deps.database.fetchval("SELECT count(*) FROM workspaces") == 0


async def test_requests_behind_each_other_are_answered_in_turn(world: World, alice: Person) -> None:
    """Pipelining is no smuggling: what is said twice is answered twice, each by what it shows itself."""
    mine = request("GET", "/api/v1/session", {"Host": world.host, "Cookie": alice.cookie})
    nobodys = request("GET", "/api/v1/session", {"Host": world.host})
    answers = await world.exchange(mine + nobodys + mine)
    assert [one.status for one in answers] == [200, 401, 200]


# Each names the session, or nothing at all, depending on who reads it. The second column: what the owner is answered.
PATHS: dict[str, int] = {
    "http://{host}/api/v1/session": 200,
    "http://evil.example/api/v1/session": 200,
    "https://user:word@{host}/api/v1/session": 200,
    "/api/v1/session#fragment": 200,
    "/api/v1/session?": 200,
    "/api/v1/session?%00": 200,
    "/api/v1/session?x=%ff&%": 200,
    "/api%2fv1%2Fsession": 200,
    "/%61pi/v1/session": 200,
    "//api/v1/session": 404,
    "//evil.example/api/v1/session": 404,
    "/.//api/v1/session": 404,
    "/./api/v1/session": 404,
    "/../api/v1/session": 404,
    "/%2e%2e/api/v1/session": 404,
    "/x/../api/v1/session": 404,
    "/x/%2e%2e/api/v1/session": 404,
    "/x%2f..%2fapi/v1/session": 404,
    "/assets/../api/v1/session": 404,
    "/w/../api/v1/session": 404,
    "/w/%2e%2e/api/v1/session": 404,
    "/w%2f..%2fapi/v1/session": 404,
    "/api/v1/session/": 404,
    "/api/v1/session%2f": 404,
    "/api/v1/session%00": 404,
    "/api/v1/session%00.js": 404,
    "/api/v1/session%20": 404,
    "/api/v1/session;x": 404,
    "/api/v1/session/..": 404,
    "/api/v1/session%0d%0aX-Evil:%20x": 404,
    "/API/v1/session": 404,
    "/api\\v1\\session": 404,
    "/\\evil.example": 404,
    "/%": 404,
    "/%zz": 404,
    "/%c0%af": 404,
    "/%ff%fe": 404,
    "/%25%32%66": 404,
    "/" + "%2e%2e%2f" * 2000: 404,
    "/api/v1/session" + "/x" * 5000: 404,
    "/etc/passwd": 404,
    "/assets/%2e%2e/%2e%2e/index.html": 404,
    "/assets/..%2f..%2f__init__.py": 404,
    "/assets//": 404,
}


async def test_paths_lead_where_they_say(world: World, alice: Person) -> None:
    """None leads to where its spelling does not, or elsewhere; and no spelling lets anybody in who would not be."""
    for path, expected in PATHS.items():
        target = path.format(host=world.host)
        for cookie, status in ((alice.cookie, expected), ("session=none", 401 if expected == 200 else expected)):
            answers = await world.exchange(request("GET", target, {"Host": world.host, "Cookie": cookie}))
            assert [one.status for one in answers] == [status], path
            assert answers[0].get("location") is None, path
            assert answers[0].get("x-evil") is None, path
            assert status == 200 or answers[0].code, path


async def test_ids_in_any_spelling(world: World, alice: Person, bob: Person) -> None:
    """Another's workspace stays another's, however its id is written into the path of a route."""
    hers = await world.row(alice, phase="STANDBY", desired_state="STANDBY")
    spellings = (
        hers,
        hers.upper(),
        f"%{ord(hers[0]):02x}{hers[1:]}",
        f"{{{hers}}}",
        f"urn:uuid:{hers}",
        hers.replace("-", ""),
        f"{hers}%2frecover",
        f"x%2f..%2f{hers}",
        f"../workspaces/{hers}",
        f"{hers}%00",
        f"{hers}%20",
    )
    for spelled in spellings:
        for method, rest in (("GET", ""), ("DELETE", ""), ("GET", "/operations"), ("GET", "/explain")):
            answers = await world.exchange(
                request(method, f"/api/v1/workspaces/{spelled}{rest}", {"Host": world.host, "Cookie": bob.cookie})
            )
            assert [one.status in {404, 405} for one in answers] == [True], (spelled, method, rest)
    assert await world.desired(hers) == "STANDBY"
