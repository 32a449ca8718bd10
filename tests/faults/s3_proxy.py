"""An HTTP proxy before the S3 store: answers some requests itself, changes bytes on the way, and keeps a record."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Self

import aiohttp
from aiohttp import web

_HOP = frozenset({"connection", "expect", "keep-alive", "transfer-encoding", "upgrade", "te"})
_CHUNK = 256 * 1024


@dataclass(frozen=True, slots=True)
class Call:
    """One request, as the store saw it."""

    method: str
    key: str
    query: dict[str, str]
    status: int
    began: float
    ended: float
    """`time.time()`, when the whole answer was there."""

    @property
    def what(self) -> str:
        """The S3 operation, in the words of the order that SPEC 3.8 asks for."""
        if "uploads" in self.query:
            return "begin_upload" if self.method == "POST" else "list_uploads"
        if "uploadId" in self.query:
            return {"PUT": "part", "POST": "complete", "DELETE": "abort"}[self.method]
        kind = "meta" if self.key.endswith(".meta") else "data"
        return {"PUT": "write_", "GET": "read_", "HEAD": "look_", "DELETE": "delete_"}.get(self.method, "") + kind


Match = Callable[[web.BaseRequest], bool]


@dataclass(slots=True)
class Fault:
    match: Match
    status: int
    times: int
    code: str
    after: bool
    """Let the store do it first: only the answer is lost."""


class S3Proxy:
    def __init__(self, endpoint: str) -> None:
        self._upstream = endpoint
        self._faults: list[Fault] = []
        self._healed = asyncio.Event()
        self._runner: web.ServerRunner | None = None
        self._client: aiohttp.ClientSession | None = None
        self._port = 0
        self.calls: list[Call] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        self._client = aiohttp.ClientSession(auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None))
        self._runner = web.ServerRunner(web.Server(self._handle), shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner
        assert self._client
        await self._runner.cleanup()
        await self._client.close()

    def fail(
        self,
        status: int,
        *,
        method: str = "",
        contains: str = "",
        ends: str = "",
        times: int = -1,
        code: str = "InternalError",
        after: bool = False,
    ) -> None:
        """Answer requests of this method whose path and query contain this, and whose path ends so; -1 times: until
        `heal`. Status 0: never."""

        def match(request: web.BaseRequest) -> bool:
            named = contains in request.path_qs and request.path.endswith(ends)
            return request.method.startswith(method) and named

        self._faults.append(Fault(match, status, times, code, after))

    def heal(self) -> None:
        self._faults.clear()
        self._healed.set()
        self._healed = asyncio.Event()

    def order(self, key: str) -> list[str]:
        """What succeeded on an archive and its .meta, in the order of its ends; repeated ones once."""
        done = sorted((call for call in self.calls if call.key.startswith(key)), key=lambda call: call.ended)
        words = [call.what for call in done if call.status < 300]
        return [word for before, word in zip(["", *words], words, strict=False) if word != before]

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except aiohttp.ClientError:
            # The client left, or the store did: as with any proxy, the connection breaks.
            if request.transport:
                request.transport.abort()
            raise asyncio.CancelledError from None

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        began = time.time()
        if request.headers.get("Expect") and request.transport:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        fault = next((each for each in self._faults if each.times and each.match(request)), None)
        if fault:
            fault.times -= 1
            if fault.after:
                await self._forward(request, began, silent=True)
            else:
                async for _ in request.content.iter_chunked(_CHUNK):
                    pass
            if not fault.status:
                await self._healed.wait()
            return web.Response(status=fault.status or 503, body=_error(fault), content_type="application/xml")
        return await self._forward(request, began)

    async def _forward(self, request: web.BaseRequest, began: float, *, silent: bool = False) -> web.StreamResponse:
        assert self._client
        headers = [(name, value) for name, value in request.headers.items() if name.lower() not in _HOP]
        async with self._client.request(
            request.method,
            self._upstream + request.raw_path if hasattr(request, "raw_path") else self._upstream + request.path_qs,
            headers=headers,
            data=_body(request),
            allow_redirects=False,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        ) as answer:
            back = web.StreamResponse(status=answer.status, reason=answer.reason)
            for name, value in answer.headers.items():
                if name.lower() not in _HOP:
                    back.headers.add(name, value)
            if not silent:
                await back.prepare(request)
            async for chunk in answer.content.iter_chunked(_CHUNK):
                if not silent:
                    await back.write(chunk)
            if not silent:
                await back.write_eof()
        self._record(request, answer.status, began)
        return back

    def _record(self, request: web.BaseRequest, status: int, began: float) -> None:
        key = request.path.lstrip("/").partition("/")[2]
        self.calls.append(Call(request.method, key, dict(request.query), status, began, time.time()))


async def _pieces(request: web.BaseRequest) -> AsyncIterator[bytes]:
    async for chunk in request.content.iter_chunked(_CHUNK):
        yield chunk
        await asyncio.sleep(0)


def _body(request: web.BaseRequest) -> AsyncIterator[bytes] | None:
    return _pieces(request) if request.can_read_body else None


def _error(fault: Fault) -> bytes:
    return (f'<?xml version="1.0"?><Error><Code>{fault.code}</Code><Message>made to fail</Message></Error>').encode()
