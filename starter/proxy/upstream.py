"""Connections to workspaces: one request at a time on each, kept for the next one when both sides agree."""

import asyncio
import socket
import time
from typing import Protocol, cast

from domain.model import WorkspaceId
from starter.proxy.body import BadBody, Body, Chunks, UntilClose
from starter.proxy.head import (
    LARGEST_HEAD,
    BadMessage,
    ResponseHead,
    field_lines,
    read_response,
    response_body,
    response_end,
)
from starter.proxy.headers import trailer_lines

# Node closes an idle connection after 5 s: ours are gone before that.
_IDLE_SECONDS = 4.0
_MOST_IDLE = 32
_CONNECT_SECONDS = 5.0

Key = tuple[WorkspaceId, str]


class Unreachable(Exception):
    """Nothing listens there."""


class Receiver(Protocol):
    """Who gets the answer."""

    def interim(self, head: ResponseHead) -> None: ...
    def switched(self, head: ResponseHead, rest: bytes) -> None: ...
    def response(self, head: ResponseHead, body: Body | None) -> None: ...
    def response_data(self, piece: bytes) -> None: ...
    def response_over(self, trailers: list[bytes], *, reusable: bool) -> None: ...
    def upstream_lost(self, reason: str) -> None: ...
    def upstream_silent(self) -> None: ...
    def upstream_full(self, full: bool) -> None: ...


class Upstream(asyncio.Protocol):
    def __init__(self, pool: "Pool", key: Key) -> None:
        self.key = key
        self.transport: asyncio.Transport
        self.idle_since = 0.0
        self.used = False
        self._pool = pool
        self._receiver: Receiver | None = None
        self._method = b""
        self._buffer = b""
        self._head: ResponseHead | None = None
        self._body: Body | None = None
        self._patience: asyncio.TimerHandle | None = None

    def send(self, receiver: Receiver, method: bytes, head: bytes, patience: float | None = None) -> None:
        """`patience`: seconds until the first byte of the answer; None: for as long as it takes."""
        if patience is not None:
            self._patience = asyncio.get_running_loop().call_later(patience, receiver.upstream_silent)
        self._receiver = receiver
        self._method = method
        self._head = self._body = None
        self.transport.write(head)

    def let_go(self) -> None:
        """Nobody waits for the answer any more: the connection is of no further use."""
        self._heard()
        self._receiver = None
        self.transport.abort()

    def release(self) -> None:
        self._receiver = None
        self._pool.put(self)

    def detach(self) -> None:
        """From now on it is a tunnel's."""
        self._receiver = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._heard()
        if self._receiver is None:
            # An answer that nobody asked for.
            self.transport.abort()
            return
        try:
            self._read(data)
        except (BadMessage, BadBody) as error:
            self._lose(str(error))
            self.transport.abort()

    def eof_received(self) -> None:
        if self._receiver is not None and isinstance(self._body, UntilClose):
            self._over([], reusable=False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._heard()
        self._pool.discard(self)
        self._lose(str(exc) if exc else "the connection was closed")

    def pause_writing(self) -> None:
        if self._receiver is not None:
            self._receiver.upstream_full(True)

    def resume_writing(self) -> None:
        if self._receiver is not None:
            self._receiver.upstream_full(False)

    def _read(self, data: bytes) -> None:
        while self._head is None:
            if self._buffer:
                data, self._buffer = self._buffer + data, b""
            end = response_end(data)
            if end < 0:
                self._buffer = data
                if len(data) > LARGEST_HEAD:
                    raise BadMessage("The head of the answer does not end.")
                return
            head, data = read_response(data[:end]), data[end:]
            receiver = self._current()
            if head.status == 101:
                receiver.switched(head, data)
                return
            if head.status < 200:
                receiver.interim(head)
                if not data:
                    return
                continue
            self._head, self._body = head, response_body(head, self._method)
            receiver.response(head, self._body)
            if self._body is None:
                self._over([], reusable=not data)
                return
        self._read_body(data)

    def _read_body(self, data: bytes) -> None:
        if not data or self._body is None:
            return
        piece, rest, done = self._body.take(data)
        if piece:
            self._current().response_data(piece)
        # The client may have gone away over it.
        if done and self._receiver is not None:
            trailers = trailer_lines(field_lines(self._body.trailers)) if isinstance(self._body, Chunks) else []
            self._over(trailers, reusable=not rest)

    def _over(self, trailers: list[bytes], *, reusable: bool) -> None:
        receiver, head = self._current(), self._head
        self._receiver = None
        self.used = True
        receiver.response_over(trailers, reusable=reusable and head is not None and head.keeps_alive)

    def _lose(self, reason: str) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.upstream_lost(reason)

    def _heard(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _current(self) -> Receiver:
        if self._receiver is None:
            raise AssertionError("an answer is read for somebody")
        return self._receiver


class Pool:
    """Idle connections, for each workspace its own: none is ever used for another one."""

    def __init__(self) -> None:
        self._idle: dict[Key, list[Upstream]] = {}

    def take(self, key: Key) -> Upstream | None:
        """The one used last."""
        idle = self._idle.get(key)
        while idle:
            upstream = idle.pop()
            if time.monotonic() - upstream.idle_since < _IDLE_SECONDS and not upstream.transport.is_closing():
                return upstream
            upstream.transport.abort()
        return None

    async def connect(self, key: Key) -> Upstream:
        """Raises Unreachable."""
        host, _, port = key[1].rpartition(":")
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                _, upstream = await asyncio.get_running_loop().create_connection(
                    lambda: Upstream(self, key), host.strip("[]"), int(port)
                )
        except (OSError, ValueError) as error:
            raise Unreachable(f"{key[1]}: {str(error) or type(error).__name__}") from error
        keep_alive(upstream.transport)
        return upstream

    def put(self, upstream: Upstream) -> None:
        idle = self._idle.setdefault(upstream.key, [])
        if len(idle) >= _MOST_IDLE or upstream.transport.is_closing():
            upstream.transport.abort()
            return
        upstream.idle_since = time.monotonic()
        idle.append(upstream)

    def discard(self, upstream: Upstream) -> None:
        idle = self._idle.get(upstream.key)
        if idle and upstream in idle:
            idle.remove(upstream)

    def prune(self) -> None:
        """Close what was idle for too long. The oldest come first."""
        now = time.monotonic()
        for key, idle in list(self._idle.items()):
            while idle and now - idle[0].idle_since >= _IDLE_SECONDS:
                idle.pop(0).transport.abort()
            if not idle:
                del self._idle[key]

    def close(self) -> None:
        for idle in self._idle.values():
            for upstream in idle:
                upstream.transport.abort()
        self._idle.clear()


def keep_alive(transport: asyncio.Transport) -> None:
    """A peer that vanished is noticed by TCP, within two minutes: a quiet connection is never cut for being quiet."""
    found: socket.socket | None = transport.get_extra_info("socket")
    if found is None or found.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 20), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
