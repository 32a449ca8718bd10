"""Of what kind a request is, and whether it was made by one of our own pages or by another site's."""

from starlette.datastructures import Headers

from starter.api.same_origin import is_ours
from starter.proxy.decide import Kind
from starter.proxy.head import RequestHead
from starter.proxy.headers import NO_ACTIVITY

_SAFE = frozenset({b"GET", b"HEAD", b"OPTIONS", b"TRACE"})
_OWN_SITE = frozenset({None, b"same-origin", b"none"})
_PROOFS = (b"sec-fetch-site", b"origin", b"host", b"authorization", b"content-type")


def kind_of(head: RequestHead) -> Kind:
    """A navigation is a person who opens a page. What a browser does in advance, in a frame or for a script is not."""
    values = head.values
    if head.is_websocket:
        return Kind.WEBSOCKET
    if head.method not in {b"GET", b"HEAD"} or NO_ACTIVITY in values:
        return Kind.OTHER
    mode = values.get(b"sec-fetch-mode")
    if mode is not None or b"sec-fetch-dest" in values:
        early = b"sec-purpose" in values or values.get(b"purpose") == b"prefetch"
        is_page = mode == b"navigate" and values.get(b"sec-fetch-dest", b"document") == b"document"
        return Kind.NAVIGATION if is_page and not early else Kind.OTHER
    is_page = b"text/html" in values.get(b"accept", b"").lower() and b"x-requested-with" not in values
    return Kind.NAVIGATION if is_page else Kind.OTHER


def is_from_here(head: RequestHead, scheme: str) -> bool:
    """Whether no other site made the browser send this. WebSockets know no same-origin rule: they must show theirs."""
    values = head.values
    if head.is_websocket:
        origin = {} if b"origin" in head.repeated else {name: values[name] for name in (b"origin",) if name in values}
        return bool(origin) and is_ours("POST", scheme, Headers(raw=[*origin.items(), (b"host", head.host)]))
    if head.method not in _SAFE:
        shown = [(name, line.partition(b":")[2].strip(b" \t")) for name, line in head.lines if name in _PROOFS]
        return is_ours(head.method.decode(), scheme, Headers(raw=shown))
    if values.get(b"sec-fetch-site") in _OWN_SITE:
        return True
    # A link from elsewhere may be followed; scripts, images and frames of another site get nothing.
    return values.get(b"sec-fetch-mode") == b"navigate" and values.get(b"sec-fetch-dest") == b"document"
