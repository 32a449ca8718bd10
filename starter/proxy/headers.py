"""Heads on their way through: what a workspace gets to see of a request, and a browser of the answer."""

from http import HTTPStatus
from urllib.parse import urlsplit

from starter.api.authentication import TOKEN_PREFIX
from starter.proxy.body import Length
from starter.proxy.client import Client
from starter.proxy.cookies import below, confined, without_own
from starter.proxy.head import Fields, RequestHead, ResponseHead
from starter.proxy.route import Route

NO_ACTIVITY = b"x-codehub-no-activity"

_OUR_TOKEN = TOKEN_PREFIX.encode()
_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"transfer-encoding",
        b"upgrade",
    }
)
# Set by us, or nobody else's to set: what a client claims of its address is not believed.
_REPLACED = frozenset({b"content-length", b"forwarded", b"x-real-ip", NO_ACTIVITY})
# Compressed messages could not be told from keep-alives (ADR 0010): none is offered, so none is agreed on.
_NOT_OFFERED = frozenset({b"sec-websocket-extensions"})
_FILTERED = frozenset({b"cookie", b"authorization"})
_LOOKED_AT = _HOP_BY_HOP | _REPLACED | _NOT_OFFERED | _FILTERED
# Named in Connection they would be dropped; without them it would be another request.
_NEVER_NAMED = frozenset({b"host", b"cookie", b"authorization", b"content-length", b"close", b"keep-alive", b"upgrade"})

# They would act on the whole host, which is not the workspace's: cookies cleared, HTTPS forced, traffic led elsewhere,
# every error reported, a file of the web server in front of us served.
_HOST_WIDE = frozenset(
    {
        b"alt-svc",
        b"clear-site-data",
        b"expect-ct",
        b"nel",
        b"public-key-pins",
        b"public-key-pins-report-only",
        b"report-to",
        b"strict-transport-security",
        b"x-accel-redirect",
        b"x-sendfile",
    }
)
_REWRITTEN = frozenset({b"set-cookie", b"location", b"content-location", b"service-worker-allowed"})
_ANSWER_LOOKED_AT = _HOP_BY_HOP | _HOST_WIDE | _REWRITTEN | {b"content-length"}


def request_head(head: RequestHead, route: Route, client: Client) -> bytes:
    """Host stays: a workspace compares it with the Origin of its WebSockets."""
    named = _named(head)
    out = [head.method + b" " + route.target + b" HTTP/1.1"]
    for name, line in head.lines:
        if name in _LOOKED_AT:
            kept = _filtered(name, line, head) if name in _FILTERED else None
            if kept is not None:
                out.append(kept)
        elif name not in named and not _is_claim(name):
            out.append(line)
    if isinstance(head.body, Length):
        out.append(b"Content-Length: %d" % head.body.length)
    elif head.body is not None:
        out.append(b"Transfer-Encoding: chunked")
    elif head.values.get(b"content-length"):
        out.append(b"Content-Length: 0")
    if head.is_websocket:
        out.append(b"Connection: Upgrade\r\nUpgrade: websocket")
    elif b"te" in head.values and b"trailers" in head.tokens(b"te"):
        out.append(b"Connection: TE\r\nTE: trailers")
    out.append(
        b"X-Forwarded-For: %b\r\nX-Forwarded-Proto: %b\r\nX-Forwarded-Host: %b\r\n%b\r\n"
        % (client.address.encode(), client.scheme.encode(), head.host, route.forwarded)
    )
    return b"\r\n".join(out)


def without_upgrade(head: RequestHead) -> bytes:
    """The same request by somebody who does not ask for another protocol."""
    dropped = {b"upgrade", b"connection", b"http2-settings"}
    kept = [line for name, line in head.lines if name not in dropped]
    close = [b"Connection: close"] if head.wants_close else []
    version = b"1.1" if head.is_http11 else b"1.0"
    first = b"%b %b HTTP/%b" % (head.method, head.target, version)
    return b"\r\n".join([first, *kept, *close, b"", b""])


def response_lines(head: ResponseHead, route: Route, host: bytes, endpoint: bytes) -> list[bytes]:
    """Status line and headers, without those that say where the body ends and what becomes of the connection."""
    named = _named(head)
    out = [b"HTTP/1.1 %d %b" % (head.status, head.reason or _phrase(head.status))]
    for name, line in head.lines:
        if name not in _ANSWER_LOOKED_AT:
            if name not in named:
                out.append(line)
        elif name in _REWRITTEN:
            raw, _, value = line.partition(b":")
            changed = _rewritten(name, value.strip(b" \t"), route, (host, endpoint))
            if changed is not None:
                out.append(raw + b": " + changed)
    return out


def trailer_lines(lines: list[tuple[bytes, bytes]]) -> list[bytes]:
    """Without what would have been changed in the head: some servers take trailers for headers."""
    return [
        line
        for name, line in lines
        if name not in _LOOKED_AT and name not in _ANSWER_LOOKED_AT and name != b"host" and not _is_claim(name)
    ]


def chunk(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)


def last_chunk(trailers: list[bytes]) -> bytes:
    return b"0\r\n" + b"".join(line + b"\r\n" for line in trailers) + b"\r\n"


def _named(head: Fields) -> set[bytes]:
    return head.tokens(b"connection") - _NEVER_NAMED if b"connection" in head.values else set()


def _is_claim(name: bytes) -> bool:
    """Of where the request comes from. CGI and WSGI don't tell `_` from `-`."""
    if b"_" in name:
        name = name.replace(b"_", b"-")
        return name in _LOOKED_AT or name.startswith(b"x-forwarded-")
    return name.startswith(b"x-forwarded-")


def _filtered(name: bytes, line: bytes, head: RequestHead) -> bytes | None:
    raw, _, value = line.partition(b":")
    if name == b"authorization":
        return None if _OUR_TOKEN in value else line
    kept = without_own(value, head.values[name])
    if kept == value:
        return line
    return raw + b": " + kept.strip(b" \t") if kept else None


def _rewritten(name: bytes, value: bytes, route: Route, own: tuple[bytes, bytes]) -> bytes | None:
    match name:
        case b"set-cookie":
            return confined(value, route.prefix)
        case b"service-worker-allowed":
            return below(value, route.prefix) if _is_plain_path(value) else None
    return _location(value, route.prefix, own)


def _location(value: bytes, prefix: bytes, own: tuple[bytes, bytes]) -> bytes:
    """A path, or a URL that names this very place, is the workspace's own: it gets the prefix back."""
    if value.startswith(b"/") and not value.startswith((b"//", b"/\\")):
        return below(value, prefix)
    if not value.lower().startswith((b"http://", b"https://", b"//")):
        return value
    try:
        parts = urlsplit(value)
    except ValueError:
        return value
    if not parts.netloc or parts.netloc not in own:
        return value
    rest = value[value.index(parts.netloc) + len(parts.netloc) :]
    return below(rest if rest.startswith(b"/") else b"/" + rest, prefix)


def _is_plain_path(value: bytes) -> bool:
    """Whether a browser reads it as it stands: no dots that lead up, in no disguise, and no host."""
    segments = value.split(b"/")
    odd = any(character in value for character in b"%\\\t?#")
    return segments[0] == b"" and b"" not in segments[1:-1] and not odd and not {b".", b".."} & set(segments)


def _phrase(status: int) -> bytes:
    try:
        return HTTPStatus(status).phrase.encode()
    except ValueError:
        return b""
