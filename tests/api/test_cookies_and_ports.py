"""Cookies keep hosts apart, not ports: what a port of a workspace on the hub's own host gets, in a real browser."""

from collections.abc import AsyncIterator
from http.cookies import SimpleCookie

import pytest
from aiohttp import web

from starter.api.dependencies import ApiConfig
from starter.api.forwarded import TrustedProxies
from tests.api.world import serving
from tests.browser import launched, visit

HUB = "hub.example.com"


@pytest.fixture
async def heard() -> AsyncIterator[tuple[int, list[str]]]:
    """A port as a workspace's is published, and what it hears."""
    cookies: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/":
            cookies.append(request.headers.get("Cookie", ""))
        return web.Response(text="a workspace")

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield runner.addresses[0][1], cookies
    await runner.cleanup()


@pytest.mark.parametrize(("scheme", "name"), [("https", "__Host-session"), ("http", "session")])
async def test_the_login_of_https_stays_off_plain_ports(
    database_url: str, chromium: str, heard: tuple[int, list[str]], scheme: str, name: str
) -> None:
    """And that of plain HTTP does not: docs/threat-model.md says so, and `codehub doctor`."""
    port, cookies = heard
    config = ApiConfig(default_image="ide", trusted_proxies=TrustedProxies.parse("127.0.0.0/8"))
    async with serving(database_url, config) as api:
        await api.person("alice")
        answer = await api.login("alice", X_Forwarded_Proto=scheme)
        morsel = SimpleCookie(answer.headers["Set-Cookie"])[name]
    async with launched(chromium, f"--host-resolver-rules=MAP {HUB} 127.0.0.1") as browser:
        context = await browser.new_context()
        await context.add_cookies(
            [
                {
                    "name": name,
                    "value": morsel.value,
                    "url": f"{scheme}://{HUB}/",
                    "secure": bool(morsel["secure"]),
                    "httpOnly": bool(morsel["httponly"]),
                    "sameSite": "Lax",
                }
            ]
        )
        await visit(await context.new_page(), f"http://{HUB}:{port}/")
        assert cookies[0] == ("" if scheme == "https" else f"session={morsel.value}")
