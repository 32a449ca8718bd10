"""Requests that change something come from our own pages, or from a program (SPEC 12, PROMISES 33).

A browser adds cookies to requests that other sites make. So every unsafe request needs a proof of origin, login
included, unless it is made by an API token of ours: no other site can make a browser send one. Any other bearer is
no exemption, since the cookie beside it might count.

- `Sec-Fetch-Site`, where a browser sends it, must be `same-origin`, or `none` (the person's own doing).
- Else `Origin`, where there is one, must be this very scheme, host and port.
- With neither, it is a program such as curl, or a browser from before 2020: POST must be `application/json`, also with
  no body, which no HTML form can send; PUT, PATCH and DELETE can't be sent across sites without a preflight, and
  preflights are never granted.
"""

from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from starter.api.authentication import bearer_secret
from starter.api.errors import ApiError

_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_DEFAULT_PORTS = {"http": 80, "https": 443}


class SameOriginMiddleware:
    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not is_ours(scope["method"], scope["scheme"], Headers(scope=scope)):
            refusal = ApiError(
                403,
                "cross_site",
                "This request did not come from this site. A program sends Content-Type: application/json, "
                "or an API token.",
            )
            await refusal.response()(scope, receive, send)
            return
        await self.app(scope, receive, send)


def is_ours(method: str, scheme: str, headers: Headers) -> bool:
    if method in _SAFE or bearer_secret(headers) is not None:
        return True
    site = headers.getlist("sec-fetch-site")
    if site:
        return site in (["same-origin"], ["none"])
    if "origin" in headers:
        return shows_own_origin(scheme, headers)
    return method != "POST" or media_type(headers) == "application/json"


def shows_own_origin(scheme: str, headers: Headers) -> bool:
    origin = headers.getlist("origin")
    return len(origin) == 1 and _is_own(origin[0], scheme, headers.get("host", ""))


def media_type(headers: Headers) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _is_own(origin: str, scheme: str, host: str) -> bool:
    theirs = _place(origin)
    return theirs is not None and theirs == _place(f"{scheme}://{host}")


def _place(url: str) -> tuple[str, str, int | None] | None:
    try:
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return None
    # Nothing behind the port, not even an empty query, and nothing that a lenient reader leaves out.
    plain = url.partition("://")[2] == parts.netloc and "@" not in parts.netloc
    return (parts.scheme, parts.hostname, port) if parts.hostname and plain else None
