"""Heads and bodies, as they are read off the wire."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starter.proxy.body import BadBody, Body, Chunks, Length, UntilClose
from starter.proxy.frames import FrameScanner, close_frame
from starter.proxy.head import BadMessage, read_request, read_response, response_body, response_end
from starter.proxy.route import AddSlash, Places, Route

WORKSPACE = "0b8f6f0e-6a7b-4c7e-9d3a-2f1e5c4b3a21"


def request(*lines: str, first: str = "POST /x HTTP/1.1") -> bytes:
    return "\r\n".join([first, "Host: hub", *lines, "", ""]).encode("latin-1")


def test_a_head_as_it_came() -> None:
    """Names, values and their order are kept, byte for byte; lookups don't care about case."""
    head = read_request(request("X-A:  1 ", "x-b:2", "X-a: 3", "Accept: text/html"))
    assert [line for _, line in head.lines] == [b"Host: hub", b"X-A:  1 ", b"x-b:2", b"X-a: 3", b"Accept: text/html"]
    assert head.values[b"x-a"] == b"1, 3"
    assert head.repeated == {b"x-a"}
    assert (head.method, head.target, head.is_http11, head.body) == (b"POST", b"/x", True, None)


@pytest.mark.parametrize(
    "raw",
    [
        request("Content-Length: 1", "Content-Length: 1"),
        request("Content-Length: 1, 1"),
        request("Content-Length: +1"),
        request("Content-Length: 0x1"),
        request("Content-Length: "),
        request("Content-Length: 1", "Transfer-Encoding: chunked"),
        request("Transfer-Encoding: chunked", "Transfer-Encoding: identity"),
        request("Transfer-Encoding: chunked", first="POST /x HTTP/1.0"),
        request("Host: other"),
        request("X : 1"),
        request(" X: 1"),
        request("X: 1", "\t2"),
        request("X"),
        request(": 1"),
        request("X: \x00"),
        request("X: \x7f"),
        request("X: a\rb"),
        request("Authorization: a", "Authorization: b"),
        request(first="POST  /x HTTP/1.1"),
        request(first="POST /x  HTTP/1.1"),
        request(first="POST /x HTTP/1.1 "),
        request(first="POST /x HTTP/2.0"),
        request(first="POST /x"),
        request(first="POST /\xe9 HTTP/1.1"),
        request(first="P(ST /x HTTP/1.1"),
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        b"GET / HTTP/1.1\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\nX: 1\r\n\r\n",
    ],
)
def test_what_can_be_read_in_two_ways_is_refused(raw: bytes) -> None:
    """Whoever is behind might read it in the other."""
    with pytest.raises(BadMessage):
        read_request(raw)


def _kind(raw: bytes) -> tuple[type[Body] | None, int]:
    body = read_request(raw).body
    return (type(body) if body else None, body.length if isinstance(body, Length) else 0)


def test_bodies_of_requests() -> None:
    """Where they end is told in one way."""
    assert _kind(request("Content-Length: 012")) == (Length, 12)
    assert _kind(request("Content-Length: 0")) == (None, 0)
    assert _kind(request("Transfer-Encoding: Chunked")) == (Chunks, 0)
    assert _kind(request()) == (None, 0)


@pytest.mark.parametrize(
    ("raw", "method", "expected"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", b"GET", Length),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n", b"GET", Length),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", b"HEAD", None),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", b"GET", None),
        (b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n", b"GET", None),
        (b"HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", b"GET", Chunks),
        (b"HTTP/1.0 200 OK\nContent-Type: text/plain\n\n", b"GET", UntilClose),
        (b"HTTP/1.0 200 OK\r\nX: a\n  b\r\n\r\n", b"GET", UntilClose),
    ],
)
def test_bodies_of_answers(raw: bytes, method: bytes, expected: type[Body] | None) -> None:
    """Also of old scripts, which end lines as they like."""
    assert response_end(raw + b"rest") == len(raw)
    found = response_body(read_response(raw), method)
    assert (type(found) if found else None) is expected


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"hello\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nbroken\r\n\r\n",
    ],
)
def test_answers_that_are_none(raw: bytes) -> None:
    """The client gets 502, not a guess."""
    with pytest.raises(BadMessage):
        response_body(read_response(raw), b"GET")


def _fed(data: bytes, cuts: list[int]) -> tuple[bytes, bytes, bytes]:
    """Body, trailers and rest of `data`, which comes in pieces."""
    chunks, body = Chunks(), b""
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, end in pairwise(edges):
        piece, rest, done = chunks.take(data[start:end])
        body += piece
        if done:
            return body, chunks.trailers, rest + data[end:]
        assert not rest
    raise AssertionError("it has no end")


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=6), st.lists(st.integers(0, 10**6), max_size=12))
def test_chunks_however_they_are_cut(pieces: list[bytes], cuts: list[int]) -> None:
    """The same body, trailers and rest, wherever the network cuts."""
    data = b"".join(b"%X;ext=1\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    data += b"000\r\nX-T: 1\r\nY: 2\r\n\r\nNEXT"
    assert _fed(data, cuts) == (b"".join(pieces), b"X-T: 1\r\nY: 2", b"NEXT")


@pytest.mark.parametrize(
    "data",
    [
        b"5\nhello\r\n0\r\n\r\n",
        b"5\r\nhello0\r\n\r\n",
        b"5\r\nhelloXX0\r\n\r\n",
        b" 5\r\nhello\r\n",
        b"5 \r\nhello\r\n",
        b"0x5\r\nhello\r\n",
        b"-5\r\nhello\r\n",
        b"5_0\r\n",
        b"\r\nhello\r\n",
        b"g\r\n",
        b"1" * 16 + b"\r\n",
        b"5;" + b"a" * 5000,
        b"5\r\nhello\n0\r\n\r\n",
        b"5;a\x00\r\nhello\r\n",
        b"0\r\n" + b"X: %b\r\n" % (b"a" * 4000) * 5 + b"\r\n",
    ],
)
def test_chunks_that_are_none(data: bytes) -> None:
    """Refused, whole or byte by byte."""
    with pytest.raises(BadBody):
        Chunks().take(data)
    with pytest.raises(BadBody):
        _fed(data, list(range(len(data))))


def test_length() -> None:
    """What comes after the body is the next message's."""
    body = Length(5)
    assert body.take(b"abc") == (b"abc", b"", False)
    assert body.take(b"deXY") == (b"de", b"XY", True)
    assert Length(3).take(b"abc") == (b"abc", b"", True)


@pytest.mark.parametrize(
    ("target", "upstream"),
    [
        (f"/w/{WORKSPACE}/", "/"),
        (f"/w/{WORKSPACE}/a%2F..%2fb/../../c?d=/w/x", "/a%2F..%2fb/../../c?d=/w/x"),
        (f"/w/{WORKSPACE}//evil", "//evil"),
        (f"/w/{WORKSPACE}/?", "/?"),
    ],
)
def test_routes(target: str, upstream: str) -> None:
    """The prefix goes; nothing of the rest is touched, and nothing of it leads elsewhere."""
    assert Places().find(b"", target.encode()) == Route(WORKSPACE, f"/w/{WORKSPACE}".encode(), upstream.encode())  # type: ignore[arg-type]


def test_no_slash() -> None:
    """The slash is added, the query kept."""
    assert Places().find(b"", f"/w/{WORKSPACE}?a=b%20".encode()) == AddSlash(f"/w/{WORKSPACE}/?a=b%20".encode())


@pytest.mark.parametrize(
    "target",
    ["/w/", "/w/x/", f"/w/{WORKSPACE.upper()}/", f"/w/{WORKSPACE}x/", f"/w/../{WORKSPACE}/", f"/w//{WORKSPACE}/"],
)
def test_no_workspace(target: str) -> None:
    """An id has one spelling."""
    assert not isinstance(Places().find(b"", target.encode()), (Route, AddSlash))


def _frame(opcode: int, payload: bytes, *, masked: bool) -> bytes:
    size = len(payload)
    mask = 0x80 if masked else 0
    length = (
        bytes([mask | size])
        if size < 126
        else bytes([mask | 126]) + size.to_bytes(2, "big")
        if size < 65536
        else bytes([mask | 127]) + size.to_bytes(8, "big")
    )
    return bytes([0x80 | opcode]) + length + (b"mask" if masked else b"") + payload


def test_frames_however_they_are_cut() -> None:
    """Data frames are seen, pings and closes are not, wherever the network cuts (2,000 streams)."""
    choice = random.Random(1)
    for _ in range(2000):
        masked = choice.random() < 0.5
        opcodes = [choice.choice([0, 1, 2, 8, 9, 10]) for _ in range(choice.randint(1, 5))]
        frames = [
            _frame(opcode, bytes(choice.choice([0, 1, 125, 126, 300, 70000])), masked=masked) for opcode in opcodes
        ]
        stream = b"".join(frames)
        scanner, saw, at = FrameScanner(), False, 0
        while at < len(stream):
            size = choice.choice([1, 2, 3, 7, 100, 10000, 100000])
            saw = scanner.saw_activity(stream[at : at + size]) or saw
            at += size
        assert saw is any(opcode < 3 for opcode in opcodes)
        assert scanner.is_at_boundary


def test_no_frame_of_ours_inside_of_theirs() -> None:
    """A close of ours goes between frames only."""
    frame = _frame(1, b"hello", masked=False)
    for cut in range(len(frame) + 1):
        scanner = FrameScanner()
        scanner.saw_activity(frame[:cut] or b"")
        assert scanner.is_at_boundary is (cut in {0, len(frame)})
    assert close_frame(1013) == b"\x88\x02\x03\xf5"
