"""What passes, and how: HTTP between a client and a RUNNING workspace."""

import asyncio
import re
from functools import partial

from domain.model import WorkspaceId
from tests.proxy.world import Person, Workspace, World, comes, reply


def _head(world: World, person: Person, path: str, *lines: str, method: str = "GET", json: bool = False) -> bytes:
    """`json`: by which a program shows that no other site's form sends this."""
    first = [f"{method} {path} HTTP/1.1", f"Host: {world.host}", f"Cookie: {person.cookie}"]
    return "\r\n".join([*first, *(["Content-Type: application/json"] if json else []), *lines, "", ""]).encode()


async def test_a_request_passes(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """The prefix goes, the rest of the target is the workspace's own, byte for byte."""
    answer = await world.get(at + "a%2Fb/../c;d?x=1&y=%20%3F/", alice)
    assert (answer.status, answer.body) == (200, b"ok")
    assert ws.received.startswith(b"GET /a%2Fb/../c;d?x=1&y=%20%3F/ HTTP/1.1\r\n")


async def test_no_slash(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """`/w/{id}` is sent on to `/w/{id}/`, whatever the method, and nothing reaches the workspace."""
    answer = await world.get(at[:-1] + "?q=1", alice)
    assert (answer.status, answer.get("location")) == (308, at + "?q=1")
    assert ws.connections == []


async def test_repeated_headers_stay_repeated(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """In both directions, in order, with the case and the spaces they came with (PROMISE 30)."""
    ws.answer = (
        b"HTTP/1.1 299 Odd Reason\r\nX-A: 1\r\nVary: a\r\nx-a:  2\r\nVary: b\r\nWWW-Authenticate: Basic\r\n"
        b"WWW-Authenticate: Digest\r\nContent-Length: 0\r\n\r\n"
    )
    sent = _head(world, alice, at, "X-Up: 1", "Accept: a", "x-up:2", "Accept: b")
    answer = await world.raw(sent)
    assert re.findall(rb"(?i)\r\n((?:x-up|accept): ?.)", ws.received) == [
        b"X-Up: 1",
        b"Accept: a",
        b"x-up:2",
        b"Accept: b",
    ]
    assert answer.startswith(b"HTTP/1.1 299 Odd Reason\r\nX-A: 1\r\nVary: a\r\nx-a:  2\r\nVary: b\r\n")
    assert reply(answer).all("www-authenticate") == ["Basic", "Digest"]


async def test_hop_by_hop_headers_are_dropped(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """Also those that Connection names; never the ones that a request needs."""
    ws.answer = (
        b"HTTP/1.1 200 OK\r\nConnection: X-Hop, keep-alive\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nX-Kept: 1\r\n"
        b"Proxy-Authenticate: Basic\r\nUpgrade: h2c\r\nContent-Length: 0\r\n\r\n"
    )
    answer = await world.get(
        at,
        alice,
        Connection="X-Named, keep-alive, Host, Cookie",
        X_Named="1",
        Keep_Alive="300",
        Proxy_Connection="keep-alive",
        TE="gzip",
        Upgrade="h2c",
        X_Kept="1",
    )
    names = {name for name, _ in ws.headers()}
    assert not names & {"x-named", "keep-alive", "proxy-connection", "te", "upgrade", "connection"}
    assert {"host", "x-kept"} <= names
    assert [name for name, _ in answer.headers] == ["X-Kept", "Content-Length"]


async def test_forwarded_headers(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """Ours replace what a client claims, in any spelling; Host stays, so that the workspace can check an Origin."""
    claims = {
        "X_Forwarded_For": "6.6.6.6",
        "X_Forwarded_Proto": "https",
        "X_Forwarded_Host": "evil",
        "X_Forwarded_Prefix": "/evil",
        "X_Forwarded_Port": "1",
        "Forwarded": "for=6.6.6.6",
        "X_Real_IP": "6.6.6.6",
    }
    raw = _head(world, alice, at, *(f"{name.replace('_', '-')}: {value}" for name, value in claims.items()))
    await world.raw(raw.replace(b"\r\n\r\n", b"\r\nX_Forwarded_For: 6.6.6.6\r\nx_real-ip: 6.6.6.6\r\n\r\n"))
    sent = [(name, value) for name, value in ws.headers() if "forwarded" in name or "real" in name or name == "host"]
    assert sent == [
        ("host", world.host),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-host", world.host),
        ("x-forwarded-prefix", at[:-1]),
    ]


async def test_redirects_get_the_prefix_back(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """A path or a URL of this very place; not another site's, and not twice."""
    for given, seen in [
        ("/login?x=/y", f"{at}login?x=/y"),
        ("/", at),
        (f"{at}lab", f"{at}lab"),
        ("relative/x", "relative/x"),
        ("./login", "./login"),
        ("?a", "?a"),
        (f"http://{world.host}/a", f"{at}a"),
        (f"https://{world.host}", at),
        (f"//{ws.endpoint}/b", f"{at}b"),
        ("https://elsewhere.example/a", "https://elsewhere.example/a"),
        (f"http://{world.host}.evil/a", f"http://{world.host}.evil/a"),
        ("//elsewhere.example", "//elsewhere.example"),
    ]:
        ws.answer = f"HTTP/1.1 302 Found\r\nLocation: {given}\r\nContent-Length: 0\r\n\r\n".encode()
        assert (await world.get(at, alice)).get("location") == seen


async def test_a_workspace_has_no_say_over_the_host(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """Headers that act on the whole origin don't pass; a service worker stays below the prefix."""
    dropped = ("Clear-Site-Data", "Strict-Transport-Security", "Alt-Svc", "NEL", "Report-To", "X-Accel-Redirect")
    lines = "".join(f"{name}: x\r\n" for name in dropped)
    for given, seen in [
        ("/", at),
        ("/static", f"{at}static"),
        (at, at),
        ("/../..", None),
        ("../../../", None),
        ("/%2e%2e/", None),
        ("//evil/", None),
        ("/.\t./", None),
        ("/\\../", None),
        (f"{at}../../", None),
    ]:
        ws.answer = f"HTTP/1.1 200 OK\r\n{lines}Service-Worker-Allowed: {given}\r\nContent-Length: 0\r\n\r\n".encode()
        answer = await world.get(at, alice)
        assert answer.get("service-worker-allowed") == seen, given
        assert not [name for name in dropped if answer.get(name)]


async def test_connections_are_kept(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """Twenty requests, one after the other, on one connection to the workspace and one from the client."""
    async with world.connect() as (reader, writer):
        for number in range(20):
            writer.write(_head(world, alice, f"{at}{number}"))
            await reader.readuntil(b"ok")
    assert len(ws.connections) == 1
    assert ws.requests == 20


async def test_pipelined_requests(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """Answered in order, one at a time, mixed with the API's on the same connection."""
    body = _head(world, alice, f"{at}b", "Content-Length: 5", method="PUT", json=True) + b"hello"
    api = _head(world, alice, "/api/v1/session")
    last = _head(world, alice, f"{at}c", "Connection: close")
    async with world.connect() as (reader, writer):
        writer.write(_head(world, alice, f"{at}a") + api + body + api + last)
        answers = await asyncio.wait_for(reader.read(), 10)
    assert re.findall(rb"\r\n\r\nok|username", answers) == [b"\r\n\r\nok", b"username"] * 2 + [b"\r\n\r\nok"]
    assert answers.count(b"HTTP/1.1 200") == 5
    assert (ws.requests, ws.received.count(b"hello")) == (3, 1)


async def test_the_api_is_as_it_was(world: World, alice: Person) -> None:
    """Everything that is not below `/w/` is answered by the API."""
    assert (await world.get("/health/live")).status == 200
    assert b"alice" in (await world.get("/api/v1/session", alice)).body
    body = b'{"name": "n", "desired_state": "STANDBY"}'
    made = await world.get("/api/v1/workspaces", alice, "POST", body, Content_Type="application/json")
    assert made.status == 201
    for path in ("/w", "//w/x/", "/%77/x/", "http://hub/w/x/", "/nowhere"):
        assert (await world.get(path, alice)).status == 404, path


async def test_an_upgrade_that_nobody_follows(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """A client that would rather speak HTTP/2 is answered in HTTP/1.1, and its connection goes on."""
    body = b'{"name": "n", "desired_state": "STANDBY"}'
    upgrade = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__")
    length = f"Content-Length: {len(body)}"
    async with world.connect() as (reader, writer):
        for path in (at, "/api/v1/workspaces", at):
            writer.write(_head(world, alice, path, *upgrade, length, method="POST", json=True) + body)
            answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
            assert answer.startswith(b"HTTP/1.1 20")
            await reader.readexactly(int(answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))
    assert b"h2c" not in ws.received


async def test_a_body_streams_up(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """Each piece arrives before the next is sent; chunks stay chunks, a length stays a length."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            if data.endswith((b"end", b"\r\n0\r\nX-Sum: 9\r\n\r\n", b"0\r\nX-Sum: 9\r\n\r\n")):
                writer.write(ws.answer)

    ws.handler = handler
    async with world.connect() as (reader, writer):
        writer.write(_head(world, alice, at, "Content-Length: 9", method="POST", json=True))
        for piece in (b"one", b"two", b"end"):
            writer.write(piece)
            await comes(partial(ws.has, piece))
        await reader.readuntil(b"ok")
        assert ws.header("content-length") == ["9"]
        writer.write(_head(world, alice, at, "Transfer-Encoding: chunked", method="POST", json=True))
        for piece in (b"ONE", b"END"):
            writer.write(b"3;x=y\r\n" + piece + b"\r\n")
            await comes(partial(ws.has, b"3\r\n" + piece + b"\r\n"))
        writer.write(b"0\r\nX-Sum: 9\r\nCookie: session=x\r\n\r\n")
        await reader.readuntil(b"ok")
    assert bytes(ws.connections[-1]).endswith(b"0\r\nX-Sum: 9\r\n\r\n")
    assert ws.received.count(b"Transfer-Encoding: chunked\r\n") == 1


async def test_a_body_streams_down(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """Each piece arrives before the next is made; chunks keep their trailers, and an end by closing becomes chunks."""
    go_on = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.read(65536)
        if b"/old" in head:
            writer.write(b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n")
        for piece in (b"one", b"two"):
            writer.write(piece if b"/old" in head else b"3;e\r\n" + piece + b"\r\n")
            await go_on.wait()
            go_on.clear()
        if b"/old" not in head:
            writer.write(b"0\r\nX-Sum: 6\r\nSet-Cookie: session=x\r\n\r\n")

    ws.handler = handler
    for path in (at, f"{at}old"):
        async with world.connect() as (reader, writer):
            writer.write(_head(world, alice, path))
            await asyncio.wait_for(reader.readuntil(b"one\r\n"), 20)
            go_on.set()
            await asyncio.wait_for(reader.readuntil(b"two\r\n"), 20)
            go_on.set()
            end = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
            assert end == (b"0\r\nX-Sum: 6\r\n\r\n" if path == at else b"0\r\n\r\n")


async def test_answers_without_a_body(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """HEAD, 204 and 304 end with their head, whatever length they tell; the connections go on."""
    async with world.connect() as (reader, writer):
        for method, status in (("HEAD", b"200 OK"), ("GET", b"204 No Content"), ("GET", b"304 Not Modified")):
            length = b"" if status.startswith(b"204") else b"Content-Length: 1000\r\n"
            ws.answer = b"HTTP/1.1 %b\r\nETag: x\r\n%b\r\n" % (status, length)
            writer.write(_head(world, alice, at, method=method))
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
            assert head == b"HTTP/1.1 %b\r\nETag: x\r\n%b\r\n" % (status, length)
        ws.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlast"
        writer.write(_head(world, alice, at))
        assert (await asyncio.wait_for(reader.readuntil(b"last"), 20)).endswith(b"last")
    assert len(ws.connections) == 1


async def test_100_continue(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """The workspace says whether to go on, not the proxy; early hints pass as well."""
    asked = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        await asked.wait()
        writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n")
        assert await reader.read(100) == b"hello"
        writer.write(ws.answer)
        await reader.read(1)

    ws.handler = handler
    async with world.connect() as (reader, writer):
        writer.write(_head(world, alice, at, "Expect: 100-continue", "Content-Length: 5", method="PUT"))
        await comes(lambda: b"Expect: 100-continue" in ws.received)
        asked.set()
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 103 Early Hints\r\nLink")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"hello")
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")


async def test_an_answer_before_the_request_has_ended(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """It arrives while the body is still being sent; the connection is not used again."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\n\r\nlarge")
        while await reader.read(65536):
            pass

    ws.handler = handler
    async with world.connect() as (reader, writer):
        writer.write(_head(world, alice, at, "Content-Length: 1000000", method="POST", json=True) + b"x" * 1000)
        assert (await asyncio.wait_for(reader.readuntil(b"large"), 20)).startswith(b"HTTP/1.1 413")
        writer.write(b"x" * 1000)
        assert await asyncio.wait_for(reader.read(), 20) == b""


async def test_a_client_that_goes_away(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """The workspace notices at once, whether it is being asked or answering."""
    gone = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.read(65536):
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n" if b"/stream" in ws.received else b"")
        finally:
            gone.set()

    ws.handler = handler
    for path in (at, f"{at}stream"):
        async with world.connect() as (_, writer):
            writer.write(_head(world, alice, path))
            await comes(lambda: bool(ws.connections) and bool(ws.connections[-1]))
        await asyncio.wait_for(gone.wait(), 20)
        gone.clear()
        ws.connections.clear()


async def test_an_answer_that_breaks_off(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """The client can tell that something is missing: no last chunk, fewer bytes than the length said."""
    for answer in (
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nbroken\r\n",
    ):

        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: bytes = answer) -> None:
            await reader.read(65536)
            writer.write(answer)

        ws.handler = handler
        got = await world.raw(_head(world, alice, at))
        assert got.startswith(b"HTTP/1.1 200")
        assert not got.endswith(b"0\r\n\r\n")


async def test_a_kept_connection_that_died(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """A GET is sent again on a new one; a POST is never sent on one that could have died."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        writer.write(ws.answer)
        # The next request is read and not answered.
        await reader.read(65536)

    ws.handler = handler
    for _ in range(3):
        assert (await world.get(at, alice)).status == 200
    before = len(ws.connections)
    answer = await world.get(at, alice, "POST", b"{}", Content_Type="application/json")
    assert answer.status == 200
    assert len(ws.connections) == before + 1
    assert ws.received.count(b"POST / ") == 1


async def test_a_moved_workspace(world: World, alice: Person, ws: Workspace) -> None:
    """Its old place is dead and its new one is not known yet: it is looked up again, and found."""
    workspace_id = await world.row(alice, "127.0.0.1:1")
    await world.proxy.directory.find(WorkspaceId(workspace_id))
    await world.deps.database.execute("UPDATE workspaces SET endpoint = $2 WHERE id = $1", workspace_id, ws.endpoint)
    assert (await world.get(f"/w/{workspace_id}/", alice)).status == 200
