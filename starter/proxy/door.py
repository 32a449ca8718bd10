"""A client's connection. Requests for workspaces are ours; all others go to uvicorn, and from there to the API.

Every request is read here first, strictly, and handed on as one: whatever is behind sees the same beginning and end of
it. One at a time: the next is not looked at before the last one was answered.
"""

import asyncio
import re
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from starter.proxy import answers
from starter.proxy.body import BadBody, Body
from starter.proxy.client import Client, client_behind
from starter.proxy.exchange import Exchange
from starter.proxy.head import HEAD_END, LARGEST_HEAD, BadMessage, read_request
from starter.proxy.headers import without_upgrade
from starter.proxy.tunnel import Tunnel

if TYPE_CHECKING:
    from starter.proxy.proxy import Proxy

_HEAD_SECONDS = 30.0
_LINGER_SECONDS = 2.0
_MOST_HELD = 1024 * 1024
_EMPTY_LINES = re.compile(rb"(?:\r\n)*")
_BARE_LF = re.compile(rb"(?<!\r)\n")


class Door(HttpToolsProtocol):
    def __init__(self, proxy: "Proxy", **uvicorn: Any) -> None:
        super().__init__(**uvicorn)
        self.proxy = proxy
        self.is_stopping = False
        self._peer = Client("", "http")
        self._peer_is_trusted = False
        # What came and can't be used yet: a head that is not complete, or what has to wait for its turn.
        self._held = b""
        self._has_to_wait = False
        self._is_slow = False
        self._is_consuming = False
        self._is_lingering = False
        self._head_timer: asyncio.TimerHandle | None = None
        # The request under way: ours has an exchange.
        self._exchange: Exchange | None = None
        self._body: Body | None = None
        self._is_busy = False
        self._is_answered = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.client is not None:
            self._peer = Client(self.client[0], self.scheme or "http")
            self._peer_is_trusted = self.client[0] in self.proxy.trusted
        self._arm_keep_alive()

    def data_received(self, data: bytes) -> None:
        if self._is_lingering:
            return
        if self._held:
            data, self._held = self._held + data, b""
        self._consume(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_head_timer()
        if self._exchange is not None:
            exchange, self._exchange = self._exchange, None
            exchange.client_lost()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._exchange is not None and self._exchange.relay is not None:
            self._exchange.relay.client_full(True)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._exchange is not None and self._exchange.relay is not None:
            self._exchange.relay.client_full(False)
        elif not self._is_busy and self._has_to_wait:
            self.go_on()

    def shutdown(self) -> None:
        """The server stops: what is under way may end."""
        self.is_stopping = True
        if self._exchange is not None:
            self._exchange.close = True
        else:
            super().shutdown()

    def on_response_complete(self) -> None:
        """Of the API, by uvicorn."""
        super().on_response_complete()
        if self._exchange is None and self._is_busy:
            self._is_answered = True
            if self._body is None:
                self._next()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - it says nothing
        """By uvicorn, to what it does not take though we do: unknown methods, targets that are no path."""
        self._refuse(BadMessage("This is no request that is understood here."))

    def write(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)

    def response_over(self, *, close: bool) -> None:
        """Of an exchange. A request that was not read to its end leaves a connection that can't be used again."""
        self._is_answered = True
        if close or self._body is not None:
            self._linger()
        else:
            self._next()

    def go_on(self) -> None:
        """What had to wait may be used now."""
        self._has_to_wait = False
        if self._is_consuming or self.transport.is_closing():
            return
        self._regulate()
        data, self._held = self._held, b""
        if data:
            self._consume(data)

    def slow_down(self, slow: bool) -> None:
        self._is_slow = slow
        self._regulate()

    def hand_over(self, tunnel: Tunnel, from_upstream: bytes) -> None:
        """The connection is a tunnel's from now on."""
        connections: set[Any] = self.connections
        connections.discard(self)
        connections.add(tunnel.client_end)
        tunnel.on_close(lambda: connections.discard(tunnel.client_end))
        self._exchange = None
        self._unset_keepalive_if_required()
        from_client, self._held = self._held, b""
        self._has_to_wait = self._is_slow = False
        self._regulate()
        if self.flow.write_paused:
            tunnel.client_end.pause_writing()
        tunnel.open(from_client, from_upstream)

    def _consume(self, data: bytes) -> None:
        self._is_consuming = True
        try:
            while data and not self._is_lingering:
                if self._body is None and not self._is_busy:
                    if self.flow.write_paused:
                        # Who does not read gets no further answer: each takes more memory than its request.
                        self._hold(data)
                        break
                    data = self._take_head(data)
                elif self._body is None or (self._exchange is not None and self._exchange.relay is None):
                    self._hold(data)
                    break
                else:
                    data = self._take_body(self._body, data)
        except (BadMessage, BadBody) as error:
            self._refuse(error)
        finally:
            self._is_consuming = False

    def _take_head(self, data: bytes) -> bytes:
        """Begins the request; returns what comes after its head."""
        data = data[_EMPTY_LINES.match(data).end() :]  # type: ignore[union-attr] # matches nothing, too
        end = data.find(HEAD_END, 0, LARGEST_HEAD)
        if end < 0:
            self._wait_for_head(data)
            return b""
        self._forget_head_timer()
        self._unset_keepalive_if_required()
        end += len(HEAD_END)
        raw = data[:end]
        head = read_request(raw)
        if head.method == b"CONNECT":
            raise BadMessage("This is no forward proxy.", 405)
        if head.is_websocket and head.body is not None:
            raise BadMessage("A WebSocket's handshake has no body.")
        place = self.proxy.places.find(head.host, head.target)
        if place is None and head.is_websocket:
            raise BadMessage("There is no WebSocket here.", 404)
        self._is_busy, self._is_answered = True, False
        self._body = head.body
        if place is not None:
            client = client_behind(self._peer, head, self.proxy.trusted) if self._peer_is_trusted else self._peer
            self._exchange = Exchange(self, head, client)
            self._exchange.start(place)
        else:
            # Only what comes of this request is its cycle.
            self.cycle = None  # type: ignore[assignment]
            # An upgrade is not for the API to follow, and a parser that has seen one reads nothing more.
            super().data_received(without_upgrade(head) if b"upgrade" in head.values else raw)
        return data[end:]

    def _take_body(self, body: Body, data: bytes) -> bytes:
        piece, rest, is_over = body.take(data)
        if self._exchange is None:
            super().data_received(data[: len(data) - len(rest)])
        elif self._exchange.relay is not None:
            if piece:
                self._exchange.relay.request_data(piece)
            if is_over:
                self._exchange.relay.request_over()
        if is_over:
            self._body = None
            if self._is_answered and self._is_busy:
                self._next()
        return rest

    def _next(self) -> None:
        self._exchange = None
        self._is_busy = False
        if self.is_stopping:
            self._linger()
            return
        self._arm_keep_alive()
        if self._has_to_wait:
            self.go_on()

    def _hold(self, data: bytes) -> None:
        self._held = data
        self._has_to_wait = True
        self._regulate()
        if len(data) > _MOST_HELD:
            self.transport.abort()

    def _regulate(self) -> None:
        """Reading stops while what came can't be used, and while the workspace can't take it."""
        if self._has_to_wait or self._is_slow:
            self.flow.pause_reading()
        else:
            self.flow.resume_reading()

    def _wait_for_head(self, data: bytes) -> None:
        if len(data) > LARGEST_HEAD:
            raise BadMessage("The headers are too large.", 431)
        if _BARE_LF.search(data):
            raise BadMessage("A line does not end with CR LF.")
        self._held = data
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(_HEAD_SECONDS, self.transport.close)

    def _refuse(self, error: BadMessage | BadBody) -> None:
        has_answer = False
        if self._exchange is not None:
            exchange, self._exchange = self._exchange, None
            has_answer = exchange.relay is not None and exchange.relay.has_started
            exchange.client_lost()
        elif self._is_busy and self.cycle is not None:
            # To the API it is as if the client had left. It gets nothing of the rest: uvicorn reads less strictly than
            # we do, and might find another request in it.
            has_answer = self.cycle.response_started
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if has_answer and not self._is_answered:
            # It breaks off: whoever gets it must not take it for whole.
            self.transport.close()
            return
        if not has_answer:
            status = error.status if isinstance(error, BadMessage) else 400
            self.write(answers.error(status, "bad_request", str(error)).to_bytes(b"", close=True))
        self._linger()

    def _linger(self) -> None:
        """Close, but read on for a moment: a connection that is closed on unread data is reset, and the client would
        never see the answer.
        """
        self._is_lingering = True
        self._exchange = None
        self._held = b""
        self._has_to_wait = self._is_slow = False
        if self.transport.is_closing() or not self.transport.can_write_eof():
            self.transport.close()
            return
        self._regulate()
        self.transport.write_eof()
        self._head_timer = self.loop.call_later(_LINGER_SECONDS, self.transport.close)

    def _arm_keep_alive(self) -> None:
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _forget_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
