"""Of what kind a request is, and whether it was made by one of our own pages or by another site's."""

from starlette.datastructures import Headers

from starter.api.authentication import bearer_secret
from starter.api.same_origin import is_ours, shows_own_origin
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
    """Whether no other site made the browser send this.

    An Origin that is not ours is refused whatever the method: browsers send none with a followed link. WebSockets know
    no same-origin rule: they must show theirs, also beside a token.
    """
    values = head.values
    if head.is_websocket:
        return shows_own_origin(scheme, _shown(head))
    if head.method not in _SAFE:
        return is_ours(head.method.decode(), scheme, _shown(head))
    if b"authorization" in values and bearer_secret(_shown(head)) is not None:
        return True
    if b"origin" in values and not shows_own_origin(scheme, _shown(head)):
        return False
    if values.get(b"sec-fetch-site") in _OWN_SITE:
        return True
    # A link from elsewhere may be followed; scripts, images and frames of another site get nothing.
    return values.get(b"sec-fetch-mode") == b"navigate" and values.get(b"sec-fetch-dest") == b"document"


def _shown(head: RequestHead) -> Headers:
    return Headers(raw=[(name, line.partition(b":")[2].strip(b" \t")) for name, line in head.lines if name in _PROOFS])
