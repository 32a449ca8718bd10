"""The data plane of one HTTP exchange: both bodies as they come, each side at the pace of the other."""

from typing import TYPE_CHECKING

from adapters.redis.activity_kinds import ActivityKind
from starter.proxy.body import Body, Chunks, Length
from starter.proxy.head import BadMessage, ResponseHead, field_lines
from starter.proxy.headers import chunk, last_chunk, request_head, response_lines, trailer_lines
from starter.proxy.upstream import Upstream

if TYPE_CHECKING:
    from starter.proxy.exchange import Exchange

_EVENT_STREAM = b"text/event-stream"


class Relay:
    def __init__(self, exchange: "Exchange", upstream: Upstream) -> None:
        self.proof = exchange.proof
        self.upstream = upstream
        self._exchange = exchange
        self._door = exchange.door
        self._request = exchange.head
        self._request_open = exchange.head.body is not None
        self._counts = exchange.counts
        self.has_started = False
        self._is_chunked = False
        self._is_paused = False
        if self._door.flow.write_paused:
            self.client_full(True)
        head = request_head(exchange.head, exchange.route, exchange.client)
        upstream.send(self, exchange.head.method, head, exchange.patience)

    def request_data(self, piece: bytes) -> None:
        self._saw()
        is_chunked = isinstance(self._request.body, Chunks)
        self.upstream.transport.write(chunk(piece) if is_chunked else piece)

    def request_over(self) -> None:
        """Raises BadMessage: a trailer that is none."""
        self._request_open = False
        body = self._request.body
        if isinstance(body, Chunks):
            self.upstream.transport.write(last_chunk(trailer_lines(field_lines(body.trailers))))

    def client_lost(self) -> None:
        self.upstream.let_go()

    def client_full(self, full: bool) -> None:
        self._is_paused = full
        if full:
            self.upstream.transport.pause_reading()
        else:
            self.upstream.transport.resume_reading()

    def cut(self) -> None:
        """Whoever asked may not have the rest any more."""
        self.upstream.let_go()
        self._exchange.broken()

    def interim(self, head: ResponseHead) -> None:
        """100 Continue and early hints, for who can read them; nothing waits for them here."""
        if self._request.is_http11 and not self.has_started:
            lines = response_lines(head, self._exchange.route, self._request.host, self._endpoint)
            self._door.write(b"\r\n".join(lines) + b"\r\n\r\n")

    def switched(self, head: ResponseHead, rest: bytes) -> None:
        if not self._request.is_websocket:
            raise BadMessage("The workspace switched protocols and was not asked to.")
        lines = response_lines(head, self._exchange.route, self._request.host, self._endpoint)
        self._door.write(b"\r\n".join((*lines, b"Connection: Upgrade", b"Upgrade: websocket", b"", b"")))
        upstream = self.upstream
        upstream.detach()
        self._exchange.switched(upstream.transport, rest)

    def response(self, head: ResponseHead, body: Body | None) -> None:
        self.has_started = True
        lines = response_lines(head, self._exchange.route, self._request.host, self._endpoint)
        if body is None or isinstance(body, Length):
            # Also where it tells only how long a body would be: HEAD, 304.
            declared = head.values.get(b"content-length")
            if declared is not None and head.status != 204:
                lines.append(b"Content-Length: " + declared.partition(b",")[0])
        elif self._request.is_http11:
            self._is_chunked = True
            lines.append(b"Transfer-Encoding: chunked")
        else:
            self._exchange.close = True
        if self._exchange.close:
            lines.append(b"Connection: close")
        if head.values.get(b"content-type", b"").lower().startswith(_EVENT_STREAM):
            # Its heartbeats look like data.
            self._counts = False
        self._door.write(b"\r\n".join(lines) + b"\r\n\r\n")

    def response_data(self, piece: bytes) -> None:
        self._saw()
        self._door.write(chunk(piece) if self._is_chunked else piece)

    def response_over(self, trailers: list[bytes], *, reusable: bool) -> None:
        if self._is_chunked:
            self._door.write(last_chunk(trailers))
        if reusable and not self._request_open:
            if self._is_paused:
                self.upstream.transport.resume_reading()
            self.upstream.release()
        else:
            self.upstream.let_go()
        self._exchange.over()

    def upstream_lost(self, reason: str) -> None:
        if self.has_started:
            self._exchange.broken()
        else:
            self._exchange.failed(reason)

    def upstream_silent(self) -> None:
        self.upstream.let_go()
        self._exchange.silent()

    def upstream_full(self, full: bool) -> None:
        self._door.slow_down(full)

    @property
    def _endpoint(self) -> bytes:
        return self.upstream.key[1].encode()

    def _saw(self) -> None:
        if self._counts:
            self._exchange.proxy.activity.saw(self._exchange.route.workspace_id, ActivityKind.HTTP)
