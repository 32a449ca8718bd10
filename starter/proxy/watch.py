"""What the API of this process changes, the proxy of this process knows at once: events are for all the others."""

from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class Watch:
    """Around the application. `changed` gets the path of every request that changed something, before its answer."""

    app: ASGIApp
    changed: Callable[[str], None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in _SAFE:
            await self.app(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            # Refused ones change nothing: nobody can make us forget what we know by asking in vain.
            if message["type"] == "http.response.start" and message["status"] < 400:
                self.changed(scope["path"])
            await send(message)

        await self.app(scope, receive, sending)
