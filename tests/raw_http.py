"""HTTP without an HTTP client: what is sent is what was written, byte for byte, and all that comes back is seen.

A client library puts right what it is given: it joins repeated headers, encodes paths, refuses bad lengths. So what a
server makes of such things can only be seen from here.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

LAST = "/the-last-one"
"""What is asked for after everything else on a connection: see `exchange`."""


@dataclass(frozen=True)
class Reply:
    """An HTTP answer, taken apart from raw bytes."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def get(self, name: str) -> str | None:
        found = self.all(name)
        return found[0] if found else None

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name.lower()]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Of an error, in the shape that every error has (SPEC 12)."""
        assert set(self.json["error"]) == {"code", "message"}, self.body
        return str(self.json["error"]["code"])


@dataclass(frozen=True)
class RawClient:
    """Of a server on loopback."""

    port: int

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def origin(self) -> str:
        return f"http://{self.host}"

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)
        try:
            yield reader, writer
        except BaseException:
            # Whoever is at the other end may read no more: an orderly end would wait for it.
            writer.transport.abort()
            raise
        finally:
            await closed(writer)

    async def raw(self, data: bytes, seconds: float = 30) -> bytes:
        """What is answered to these bytes on a connection of their own, until it is whole, closed or quiet."""
        async with self.connect() as (reader, writer):
            writer.write(data)
            return await _answered(reader, seconds, has_no_body=data.startswith(b"HEAD "))

    async def send(
        self, method: str, path: str, headers: Mapping[str, str] | list[tuple[str, str]], body: bytes = b""
    ) -> Reply:
        """One request. A list of headers may name one more than once."""
        return reply(await self.raw(request(method, path, headers, body)), method)

    async def exchange_of(
        self, method: str, path: str, headers: Mapping[str, str] | list[tuple[str, str]], body: bytes = b""
    ) -> list[Reply]:
        """Every answer to one request: as `exchange`."""
        return await self.exchange(request(method, path, headers, body))

    async def exchange(self, *pieces: bytes, seconds: float = 30) -> list[Reply]:
        """Every answer to these bytes, which are sent piece by piece, but those that only say that one will come. What
        is still open after the first is asked for its end, in the most ordinary way (`LAST`): whatever was taken for a
        second request is answered before that."""
        async with self.connect() as (reader, writer):
            for piece in pieces:
                if writer.is_closing():
                    break
                writer.write(piece)
                # Another turn of the loop, and so another read at the other end.
                await asyncio.sleep(0)
            came = await _answered(reader, seconds, has_no_body=pieces[0].startswith(b"HEAD "))
            last = [("Host", self.host), ("X-Request-Id", LAST.strip("/")), ("Connection", "close")]
            with suppress(ConnectionError):
                async with asyncio.timeout(seconds):
                    if not writer.is_closing():
                        writer.write(request("GET", LAST, last))
                    while piece := await reader.read(65536):
                        came += piece
        found = replies(came, to_head=pieces[0].startswith(b"HEAD "))
        return [one for one in found if one.status >= 200 and one.get("x-request-id") != LAST.strip("/")]


@dataclass
class Browser:
    """Opens pages and follows redirects by hand, with a jar for each host: what it sends where is what a browser would.
    Every host name leads to the same server."""

    client: RawClient
    jars: dict[str, dict[str, str]]

    async def get(self, url: str) -> Reply:
        parts = urlsplit(url)
        jar = self.jars.setdefault(parts.netloc, {})
        headers = {
            "Host": parts.netloc,
            "Accept": "text/html,*/*",
            "Sec-Fetch-Site": "same-site",
            "Sec-Fetch-Mode": "navigate",
            "Sec-Fetch-Dest": "document",
        }
        if jar:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in jar.items())
        answer = await self.client.send("GET", parts.path + (f"?{parts.query}" if parts.query else ""), headers)
        for set_cookie in answer.all("set-cookie"):
            name, _, value = set_cookie.partition(";")[0].partition("=")
            jar[name] = value
            if "Max-Age=0" in set_cookie:
                del jar[name]
        return answer

    async def open(self, url: str) -> tuple[str, Reply, list[str]]:
        """To the end: where, what, and by which way."""
        way = [url]
        answer = await self.get(url)
        while location := answer.get("location"):
            url = location if "://" in location else "{0.scheme}://{0.netloc}".format(urlsplit(url)) + location
            way.append(url)
            assert len(way) < 10, way
            answer = await self.get(url)
        return url, answer, way


def request(method: str, path: str, headers: Mapping[str, str] | list[tuple[str, str]], body: bytes = b"", /) -> bytes:
    named = list(headers.items()) if isinstance(headers, Mapping) else headers
    if body and not any(name.lower() in {"content-length", "transfer-encoding"} for name, _ in named):
        named = [*named, ("Content-Length", str(len(body)))]
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in named), "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def reply(raw: bytes, method: str = "GET") -> Reply:
    """The answer that these bytes are."""
    assert raw, "nothing was answered"
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = [(line.partition(":")[0], line.partition(":")[2].strip()) for line in lines]
    return Reply(int(first.split(" ")[1]), headers, b"" if method == "HEAD" else dechunked(headers, body))


def replies(raw: bytes, *, to_head: bool = False) -> list[Reply]:
    """The answers that these bytes are, one after the other; with `to_head`, the first has no body. Without chunks: the
    API's have a length."""
    found: list[Reply] = []
    while raw:
        head, end, rest = raw.partition(b"\r\n\r\n")
        assert end, f"an answer breaks off: {raw[:200]!r}"
        length = 0 if to_head and not found else _length(head) or 0
        found.append(reply(head + end + rest[:length]))
        raw = rest[length:]
    return found


def dechunked(headers: list[tuple[str, str]], body: bytes) -> bytes:
    if ("transfer-encoding", "chunked") not in [(name.lower(), value.lower()) for name, value in headers]:
        return body
    pieces = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        if not length:
            break
        pieces, body = pieces + body[:length], body[length + 2 :]
    return pieces


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError, BrokenPipeError):
        await writer.wait_closed()


async def _answered(reader: asyncio.StreamReader, seconds: float, *, has_no_body: bool) -> bytes:
    answer = b""
    with suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(seconds):
            while piece := await reader.read(65536):
                answer += piece
                if _is_whole(answer, has_no_body=has_no_body):
                    break
    return answer


def _is_whole(answer: bytes, *, has_no_body: bool) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    if not end or b" 101 " in head[:14]:
        return False
    if b" 100 " in head[:14]:
        return _is_whole(body, has_no_body=has_no_body)
    if has_no_body or head[8:13] in {b" 204 ", b" 304 "}:
        return True
    if b"transfer-encoding: chunked" in head.lower():
        return b"0\r\n" in body and body.endswith(b"\r\n\r\n")
    length = _length(head)
    return length is not None and len(body) >= length


def _length(head: bytes) -> int | None:
    found = re.search(rb"content-length: (\d+)", head.lower())
    return int(found[1]) if found else None
