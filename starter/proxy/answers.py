"""What the proxy answers itself: pages for people, JSON for programs (SPEC 12's shape), and the 1013 of a WebSocket."""

import base64
import hashlib
import json
import re
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import assert_never
from urllib.parse import quote

from domain.model import Phase
from starter.proxy import pages
from starter.proxy.decide import (
    CloseTryAgain,
    Decision,
    Follow,
    Kind,
    LogIn,
    NotFound,
    Page,
    PageKind,
    Pass,
    Refuse,
    Unavailable,
    View,
    Wake,
)
from starter.proxy.frames import close_frame
from starter.proxy.head import RequestHead
from starter.proxy.waking import Limited

LOGIN = "/?next="
TRY_AGAIN_LATER = 1013

_WEBSOCKET_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_KEY = re.compile(rb"[A-Za-z0-9+/]{22}==")
_HEADERS = (
    "X-Content-Type-Options: nosniff\r\nReferrer-Policy: same-origin\r\nX-Frame-Options: DENY\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\nCache-Control: no-store\r\n"
)
_NO_CONTENT_POLICY = "Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    headers: str

    def to_bytes(self, method: bytes, *, close: bool, request_id: str | None = None) -> bytes:
        """`request_id`: of a request that could be read."""
        named = f"X-Request-Id: {request_id}\r\n" if request_id else ""
        head = (
            f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}\r\n{self.headers}{_HEADERS}{named}"
            f"Content-Length: {len(self.body)}\r\n{'Connection: close' + chr(13) + chr(10) if close else ''}\r\n"
        )
        return head.encode() + (b"" if method == b"HEAD" else self.body)


def of(decision: Decision, kind: Kind, view: View | None, target: bytes) -> Answer:
    match decision:
        case Follow():
            return follow(_seen(view))
        case Page(page):
            return _state(page, kind, _seen(view))
        case Unavailable(retry_after):
            return _unavailable(view, retry_after)
        case NotFound() | Refuse(404):
            return not_found(kind)
        case LogIn():
            return see_other(LOGIN + quote(target.decode("ascii"), safe=""))
        case Refuse():
            return unauthenticated()
        case Pass() | Wake() | CloseTryAgain():
            raise AssertionError(f"{decision} is carried out, not answered")
    assert_never(decision)


def follow(view: View) -> Answer:
    return _page(200, pages.following(view))


def limit(limited: Limited, view: View) -> Answer:
    return _page(502, pages.limited(limited, view))


def not_found(kind: Kind) -> Answer:
    if kind is Kind.NAVIGATION:
        return _page(404, pages.not_found())
    return error(404, "not_found", "There is no such workspace, or it is not yours.")


def add_slash(location: bytes) -> Answer:
    return Answer(308, b"", f"Location: {location.decode('ascii')}\r\n{_NO_CONTENT_POLICY}")


def see_other(location: str, headers: str = "") -> Answer:
    return Answer(303, b"", f"Location: {location}\r\n{_NO_CONTENT_POLICY}{headers}")


def not_let_in(again: str) -> Answer:
    return _page(403, pages.not_let_in(again))


def try_again() -> Answer:
    return _page(503, pages.unavailable(), "Retry-After: 2\r\n")


def leading_to(answer: Answer, hub: str) -> Answer:
    """The same on a workspace's own host, where the dashboard is not at `/`."""
    return replace(answer, body=answer.body.replace(b'href="/"', b'href="%b/"' % hub.encode()))


def unauthenticated() -> Answer:
    message = "Log in first: there is no session or token here that is valid."
    return error(401, "unauthenticated", message, 'WWW-Authenticate: Bearer realm="codehub"\r\n')


def cross_site() -> Answer:
    return error(403, "cross_site", "This request did not come from this site.")


def database_unavailable(kind: Kind) -> Answer:
    if kind is Kind.NAVIGATION:
        return try_again()
    message = "The database does not answer; try again in a moment."
    return error(503, "database_unavailable", message, "Retry-After: 2\r\n")


def internal(kind: Kind) -> Answer:
    if kind is Kind.NAVIGATION:
        return _page(500, pages.internal())
    return error(500, "internal", "Something went wrong here. The log has it.")


def error(status: int, code: str, message: str, headers: str = "") -> Answer:
    body = json.dumps({"error": {"code": code, "message": message}}).encode()
    return Answer(status, body, f"Content-Type: application/json\r\n{_NO_CONTENT_POLICY}{headers}")


def close_try_again(head: RequestHead, view: View | None) -> bytes:
    """A handshake and the close, in one. A request that could not be shaken hands with is refused."""
    key = head.values.get(b"sec-websocket-key", b"")
    if not _KEY.fullmatch(key) or head.values.get(b"sec-websocket-version") != b"13":
        return error(400, "bad_handshake", "This is not a WebSocket handshake of version 13.").to_bytes(
            head.method, close=True
        )
    accept = base64.b64encode(hashlib.sha1(key + _WEBSOCKET_MAGIC, usedforsecurity=False).digest())
    # A browser fails the handshake when it asked for a subprotocol and gets none.
    offered = head.values.get(b"sec-websocket-protocol", b"").partition(b",")[0].strip()
    protocol = b"Sec-WebSocket-Protocol: %b\r\n" % offered if offered else b""
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: %b\r\n%b\r\n" % (accept, protocol)
    ) + close_frame(TRY_AGAIN_LATER, f"the workspace is {view.phase}" if view else "")


def _state(page: PageKind, kind: Kind, view: View) -> Answer:
    if kind is Kind.NAVIGATION:
        return _page(502, pages.state(page, view))
    match page:
        case PageKind.UNREACHABLE:
            return error(502, "workspace_unreachable", "The workspace does not answer.", "Retry-After: 2\r\n")
        case PageKind.ERROR:
            message = f"The workspace is in ERROR ({view.error_reason}): recover it first."
            return error(502, "workspace_in_error", message)
    return error(502, f"workspace_{view.phase.lower()}", f"The workspace is {view.phase}: its owner has to start it.")


def _unavailable(view: View | None, retry_after: int) -> Answer:
    if view is not None and view.phase is Phase.STANDBY:
        message = "The workspace is asleep: open it in a browser, or set desired_state to RUNNING."
    else:
        message = "The workspace is not running; try again in a moment."
    return error(503, "workspace_not_running", message, f"Retry-After: {retry_after}\r\n")


def _page(status: int, page: pages.Rendered, headers: str = "") -> Answer:
    return Answer(
        status,
        page.body,
        f"Content-Type: text/html; charset=utf-8\r\nContent-Security-Policy: {page.policy}\r\n{headers}",
    )


def _seen(view: View | None) -> View:
    if view is None:
        raise AssertionError("this is decided for a workspace that was seen")
    return view
