"""PROMISE 26: our cookies and tokens never reach a workspace; foreign cookies pass byte-identical."""

import random
import string

import pytest
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection

from starter.api.authentication import bearer_secret, session_secret
from starter.api.logins import hash_secret
from starter.proxy.client import Client
from starter.proxy.cookies import confined, without_own
from starter.proxy.head import BadMessage, read_request
from starter.proxy.headers import request_head
from starter.proxy.route import Route
from tests.proxy.world import Person, Workspace, World

SECRET = "5ecre7-" + "k" * 36
TOKEN = "chub_" + "t" * 43
ROUTE = Route("0b8f6f0e-6a7b-4c7e-9d3a-2f1e5c4b3a21", b"/w/x", b"/y")  # type: ignore[arg-type]
CLIENT = Client("192.0.2.1", "http")

NAMES = ["a", "sid", "SESSION", "Session", "session2", "xsession", "_xsrf", "theme", "session.id", "vscode-tkn", "x y"]
OWN = ["session", "__Host-session"]
SPACES = ["", " ", "  ", "\t", " \t", "\xa0", "\x85"]
VALUES = ["1", "", '"quoted"', "a=b=c", "x,y", "%3B", "é", "session", '"session=no"', "a b", "{}", "=", "chub_no"]


def _cookie(choice: random.Random) -> tuple[str, list[str]]:
    """A Cookie header as a browser, a program or an attacker writes it, and the foreign parts of it."""
    parts: list[tuple[str, bool]] = []
    for _ in range(choice.randint(0, 6)):
        space, after = choice.choice(SPACES[:5]), choice.choice(SPACES[:5])
        parts.append((f"{space}{choice.choice(NAMES)}={choice.choice(VALUES)}{after}", False))
    for _ in range(choice.randint(0, 3)):
        name = choice.choice(OWN)
        around, before = choice.choice(SPACES), choice.choice(SPACES)
        value = choice.choice([SECRET, f'"{SECRET}"', f" {SECRET} "])
        parts.insert(choice.randint(0, len(parts)), (f"{around}{name}{before}={value}", True))
    if any(is_own for _, is_own in parts) and choice.random() < 0.1:
        parts.insert(choice.randint(0, len(parts)), (f' copy="{SECRET}"', True))
    return ";".join(text for text, _ in parts), [text for text, is_own in parts if not is_own]


def _authorization(choice: random.Random) -> str:
    scheme = choice.choice(["Bearer", "bearer", "BEARER", "Bearer ", "Token", "Basic", ""])
    return f"{scheme} {choice.choice([TOKEN, TOKEN + ' ', f'x {TOKEN}', 'dXNlcjpwYXNz', 'other-token'])}"


def _case(choice: random.Random, name: str) -> str:
    return "".join(choice.choice([letter.lower(), letter.upper()]) for letter in name)


def test_ten_thousand_header_sets() -> None:
    """No head that is sent to a workspace could log anybody in, or holds a secret of ours in any shape."""
    choice = random.Random(26)
    refused = 0
    for _ in range(10_000):
        lines, foreign = ["GET /w/x/y HTTP/1.1", "Host: hub"], []
        for _ in range(choice.randint(1, 2)):
            value, parts = _cookie(choice)
            foreign += parts
            lines.append(f"{_case(choice, 'Cookie')}:{choice.choice(['', ' ', '  '])}{value}")
        lines += [
            f"{_case(choice, 'Authorization')}: {_authorization(choice)}" for _ in range(choice.choice([0, 0, 1, 1, 2]))
        ]
        lines.append(f"Proxy-Authorization: Bearer {TOKEN}")
        try:
            head = read_request("\r\n".join([*lines, "", ""]).encode("latin-1"))
        except BadMessage:
            refused += 1
            continue
        sent = request_head(head, ROUTE, CLIENT)
        assert SECRET.encode() not in sent, lines
        assert TOKEN.encode() not in sent, lines
        assert not _could_log_in(sent), lines
        for part in foreign:
            assert part.strip(" \t").encode("latin-1") in sent, (part, lines)
    assert refused < 3000


def _could_log_in(sent: bytes) -> bool:
    """As our own API would read it."""
    headers = [
        (name.lower(), value.strip())
        for name, _, value in (line.partition(b":") for line in sent.split(b"\r\n")[1:] if line)
    ]
    if bearer_secret(Headers(raw=headers)):
        return True
    # Whoever asked for it could leave the Authorization out.
    cookies = [(name, value) for name, value in headers if name == b"cookie"]
    return any(
        session_secret(HTTPConnection({"type": "http", "scheme": scheme, "headers": cookies}))
        for scheme in ("http", "https")
    )


def test_foreign_cookies_are_untouched() -> None:
    """Without one of ours among them, not a byte changes: order, spaces, duplicates, quotes (10,000 headers)."""
    choice = random.Random(27)
    letters = string.ascii_letters + string.digits + "-_.!#$%&'*+^`|~ =\"\t,:/<>?@[]{}\\"
    for _ in range(10_000):
        pairs = ["".join(choice.choices(letters, k=choice.randint(0, 12))) for _ in range(choice.randint(1, 6))]
        value = ";".join(choice.choice(["", " "]) + pair for pair in pairs).encode("latin-1")
        if b"session" not in value:
            assert without_own(value) == value


@pytest.mark.parametrize(
    ("cookie", "left"),
    [
        (b"session=x", b""),
        (b"a=1; session=x; b=2", b"a=1; b=2"),
        (b"session=x; b=2", b"b=2"),
        (b"a=1; session=x", b"a=1"),
        (b"a=1;session=x;b=2", b"a=1;b=2"),
        (b"session=x; session=y; __Host-session=z", b""),
        (b'a="1; session=x"; b=2', b'a="1; b=2'),
        (b"a=1; SESSION=x", b"a=1; SESSION=x"),
        (b"a=1; session_id=x", b"a=1; session_id=x"),
        (b"a=1; other=session", b"a=1; other=session"),
        (b" session =x; a=1", b"a=1"),
        (b'"session"=x; a=1', b"a=1"),
        (b"session=; a=1", b"a=1"),
        (b"session; a=1", b"a=1"),
        (b"session=x; copy=x; a=1", b"a=1"),
    ],
)
def test_ours_go(cookie: bytes, left: bytes) -> None:
    assert without_own(cookie) == left


PREFIX = b"/w/id"


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        (b"a=1", b"a=1"),
        (b"a=1; Path=/", b"a=1; Path=/w/id/"),
        (b"a=1; Path=/lab; HttpOnly", b"a=1; HttpOnly; Path=/w/id/lab"),
        (b"a=1; path=/w/id/lab", b"a=1; Path=/w/id/lab"),
        (b"a=1; Path=/w/idx", b"a=1; Path=/w/id/w/idx"),
        (b"a=1; Path=/w/other/; Path=/api", b"a=1; Path=/w/id/api"),
        (b"a=1; Path=relative", b"a=1"),
        (b"a=1; Domain=example.com; Secure; SameSite=None", b"a=1; Secure; SameSite=None"),
        (b"a=1;DOMAIN = example.com", b"a=1"),
        (b"SESSION=1", b"SESSION=1"),
        (b"session=1", None),
        (b"session=1; Path=/w/id/", None),
        (b" session =1", None),
        (b'"session"=1', None),
        (b"__Host-session=1; Secure; Path=/", None),
        (b"=session=1", None),
        (b"session", None),
        (b"", None),
        (b" =x", None),
    ],
)
def test_a_workspaces_cookies_stay_with_it(given: bytes, seen: bytes | None) -> None:
    """None is named like ours, none without a name, none leaves the prefix."""
    assert confined(given, PREFIX) == seen


async def test_hundreds_through_the_wire(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """What the workspace really gets, over kept connections, from a user who is really logged in (300 requests)."""
    choice = random.Random(28)
    token = await _token(world, alice)
    for number in range(300):
        foreign = [f"{choice.choice(NAMES)}={choice.choice(VALUES[:6])}" for _ in range(choice.randint(0, 4))]
        parts = [*foreign, alice.cookie]
        choice.shuffle(parts)
        headers = {"Cookie": "; ".join(parts)}
        if number % 3 == 0:
            headers = {"Authorization": f"Bearer {token}", "Cookie": "; ".join(foreign) or "a=b"}
        assert (await world.get(f"{at}{number}", **headers)).status == 200
        assert ws.header("authorization") == []
        assert "; ".join(ws.header("cookie")) == "; ".join([part for part in parts if part != alice.cookie]) or (
            number % 3 == 0
        )
    assert alice.secret.encode() not in ws.received
    assert token.encode() not in ws.received


async def test_the_workspaces_own_authorization_passes(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """Basic and other bearers are between the client and the workspace."""
    for value in ("Basic dTpw", "token abc", "Bearer eyJ.x.y"):
        assert (await world.get(at, alice, Authorization=value)).status == 200
        assert ws.header("authorization") == [value]


async def test_set_cookie_on_the_way_back(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """Repeated, each by its own rule, and in order."""
    ws.answer = (
        b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1; Path=/\r\nSet-Cookie: session=evil; Path=/\r\n"
        b"set-cookie: b=2; Domain=127.0.0.1\r\nSet-Cookie: =session=evil\r\nContent-Length: 0\r\n\r\n"
    )
    answer = await world.get(at, alice)
    assert answer.all("set-cookie") == [f"a=1; Path={at}", "b=2"]


async def _token(world: World, person: Person) -> str:
    secret = "chub_" + "w" * 43
    await world.deps.tokens.create(person.id, "t", hash_secret(secret))
    return secret
