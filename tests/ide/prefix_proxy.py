"""The way a workspace is reached: under a prefix that it never sees."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType, web
from multidict import CIMultiDict, CIMultiDictProxy

NOT_PASSED = {"connection", "host", "keep-alive", "transfer-encoding", "upgrade"}
HANDSHAKE = "sec-websocket-"


@asynccontextmanager
async def prefix_proxy(endpoint: str, prefix: str) -> AsyncIterator[str]:
    """Yields the URL of the workspace at `endpoint` under `prefix`."""
    relays: set[asyncio.Task[None]] = set()
    async with ClientSession(auto_decompress=False) as session:

        async def handle(request: web.Request) -> web.StreamResponse:
            url = f"http://{endpoint}{request.raw_path.removeprefix(prefix)}"
            headers = _passed(request.headers)
            headers["X-Forwarded-Host"] = request.host
            if request.headers.get("Upgrade", "").lower() == "websocket":
                return await _relay(request, session, url, headers, relays)
            body = await request.read()
            async with session.request(request.method, url, headers=headers, data=body, allow_redirects=False) as reply:
                content = await reply.read()
                return web.Response(status=reply.status, headers=_passed(reply.headers), body=content)

        async def hang_up(_: web.Application) -> None:
            for task in relays:
                task.cancel()

        app = web.Application()
        # A browser that is still there would keep its sockets, and this from ending.
        app.on_shutdown.append(hang_up)
        app.router.add_route("*", prefix + "/{path:.*}", handle)
        runner = web.AppRunner(app, shutdown_timeout=0)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            port = runner.addresses[0][1]
            yield f"http://127.0.0.1:{port}{prefix}/"
        finally:
            await runner.cleanup()


async def _relay(
    request: web.Request,
    session: ClientSession,
    url: str,
    headers: "CIMultiDict[str]",
    relays: set[asyncio.Task[None]],
) -> web.WebSocketResponse:
    kept = CIMultiDict((name, value) for name, value in headers.items() if not name.lower().startswith(HANDSHAKE))
    async with session.ws_connect(url, headers=kept, max_msg_size=0) as above:
        below = web.WebSocketResponse(max_msg_size=0)
        await below.prepare(request)
        pair = {asyncio.create_task(_pass(below, above)), asyncio.create_task(_pass(above, below))}
        relays |= pair
        await asyncio.wait(pair, return_when=asyncio.FIRST_COMPLETED)
        for task in pair:
            task.cancel()
        return below


async def _pass(
    source: web.WebSocketResponse | ClientWebSocketResponse, target: web.WebSocketResponse | ClientWebSocketResponse
) -> None:
    async for message in source:
        if message.type is WSMsgType.TEXT:
            await target.send_str(message.data)
        elif message.type is WSMsgType.BINARY:
            await target.send_bytes(message.data)


def _passed(headers: "CIMultiDictProxy[str]") -> "CIMultiDict[str]":
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in NOT_PASSED)
