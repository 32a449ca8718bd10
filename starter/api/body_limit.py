"""Bodies: JSON, at most 1 MiB, within a time. Read here in full, counted as they come, whatever Content-Length says."""

import asyncio
from contextlib import suppress

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from starter.api.errors import ApiError
from starter.api.same_origin import media_type

LARGEST_BODY = 1024 * 1024
_READ_SECONDS = 30.0
_LINGER_SECONDS = 1.0


class BodyLimitMiddleware:
    def __init__(self, app: ASGIApp, largest: int = LARGEST_BODY, seconds: float = _READ_SECONDS) -> None:
        self.app = app
        self.largest = largest
        self.seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _has_body(Headers(scope=scope)):
            await self.app(scope, receive, send)
            return
        try:
            body = await self._read(scope, receive)
        except ApiError as error:
            await _refuse(error, receive, send)
            return
        if body is not None:
            await self.app(scope, _replay(body, receive), send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes | None:
        """None: the client is gone."""
        headers = Headers(scope=scope)
        declared = headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > self.largest:
            raise self._too_large()
        if media_type(headers) != "application/json":
            raise ApiError(415, "unsupported_media_type", "Send application/json.")
        body = bytearray()
        try:
            async with asyncio.timeout(self.seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    body += message.get("body", b"")
                    if len(body) > self.largest:
                        raise self._too_large()
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            raise ApiError(408, "request_timeout", "The body did not arrive in time.") from None

    def _too_large(self) -> ApiError:
        return ApiError(413, "body_too_large", f"The body is larger than {self.largest} bytes.")


async def _refuse(error: ApiError, receive: Receive, send: Send) -> None:
    """Answer before the body has ended, and close. What still comes is thrown away for a moment: a connection that is
    closed on data that nobody has read is reset, and the client would never see the answer.
    """
    error.headers["Connection"] = "close"
    response = error.response()
    await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body, "more_body": True})
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_SECONDS):
            while (await receive()).get("more_body", False):
                pass
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _has_body(headers: Headers) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def _replay(body: bytes, receive: Receive) -> Receive:
    given = False

    async def replayed() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed
