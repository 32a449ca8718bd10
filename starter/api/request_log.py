"""Around everything: the request id, one log line per request, the last word on errors, and headers for browsers."""

import time
import traceback

import structlog
from opentelemetry.trace import Span, SpanKind
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from adapters.telemetry.metrics import HTTP
from adapters.telemetry.tracing import span
from starter.api.errors import ApiError
from starter.api.forwarded import client_address
from starter.request_id import request_id

log = structlog.get_logger()

EVENTS = "/api/v1/events"
"""Lasts for as long as somebody looks: its time says nothing."""
_QUIET = frozenset({"/health/live", "/health/ready"})
_PARTS_OF_PAGES = "/assets/"

# Set unless a route has set its own: the dashboard brings its own Content-Security-Policy.
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class RequestLogMiddleware:
    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        own = request_id(Headers(scope=scope).get("x-request-id", ""))
        scope["codehub.request_id"] = own
        started = time.perf_counter()
        status = 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = own
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        with (
            structlog.contextvars.bound_contextvars(request_id=own),
            span(scope["method"], SpanKind.SERVER, **{"codehub.request_id": own}) as current,
        ):
            try:
                await self.app(scope, receive, sending)
            except Exception as error:
                # As text: a log that shows local variables would show passwords.
                log.error("request_failed", exception="".join(traceback.format_exception(error)))  # noqa: TRY400
                if status:
                    raise
                await _internal(own).response()(scope, receive, sending)
            finally:
                seconds = time.perf_counter() - started
                _tell(scope, status, seconds)
                _measure(scope, status, seconds)
                _describe(current, scope, status)


def _internal(own: str) -> ApiError:
    return ApiError(500, "internal", f"Something went wrong here. The log has it under request id {own}.")


def _describe(current: Span | None, scope: Scope, status: int) -> None:
    if current is not None:
        current.update_name(f"{scope['method']} {_route(scope) or 'unknown'}")
        current.set_attribute("http.response.status_code", status)


def _route(scope: Scope) -> str | None:
    path = getattr(scope.get("route"), "path", None)
    return str(path) if path else None


def _measure(scope: Scope, status: int, seconds: float) -> None:
    """By route, not by path: paths name workspaces. What matched none is one series, whatever strangers ask for."""
    route = _route(scope)
    if route != EVENTS:
        method = scope["method"] if route else "any"
        HTTP.labels(method, route or "none", f"{status // 100}xx" if status else "cut").observe(seconds)


def _tell(scope: Scope, status: int, seconds: float) -> None:
    # The query is left out: people put secrets into it.
    is_quiet = scope["path"] in _QUIET or scope["path"].startswith(_PARTS_OF_PAGES)
    tell = log.debug if is_quiet else log.info
    tell(
        "request",
        method=scope["method"],
        path=scope["path"],
        status=status or None,
        ms=round(seconds * 1000, 1),
        user=scope.get("codehub.user"),
        address=client_address(scope),
    )
