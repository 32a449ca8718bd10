"""The IDE in a real browser, under a prefix: a command in its terminal."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from domain.model import WorkspaceId
from tests.adapters.docker_world import DockerWorld, eventually, new_operation, new_workspace
from tests.ide.prefix_proxy import prefix_proxy

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1800)]
playwright = pytest.importorskip("playwright.async_api", reason="needs playwright")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
TERMINAL = ".terminal-wrapper.active .xterm-helper-textarea"
PATIENCE = 120_000
"""Milliseconds: the machine may be busy."""


@pytest.fixture
async def page() -> AsyncIterator[Any]:
    if CHROMIUM is None:
        pytest.skip("needs chromium")
    async with playwright.async_playwright() as started:
        browser = await started.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        try:
            opened = await browser.new_page()
            opened.set_default_timeout(PATIENCE)
            yield opened
        finally:
            await browser.close()


async def test_terminal(world: DockerWorld, page: Any) -> None:
    """A person types a command in the IDE's terminal and it runs in the workspace, with no other host involved."""
    ws = new_workspace()
    await world.runtime.create_volume(ws, new_operation())
    await world.runtime.start(ws, world.image, new_operation())
    endpoint = (await world.runtime.observe(ws, probe=True)).endpoint
    assert endpoint
    asked: list[str] = []
    sockets: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("websocket", lambda opened: sockets.append(opened.url))
    async with prefix_proxy(endpoint, f"/w/{ws}") as url:
        await page.goto(url)
        await page.wait_for_selector(".monaco-workbench .explorer-folders-view")
        await _open_terminal(page)
        await _type(page, world, ws)
        await page.wait_for_selector(".explorer-folders-view [aria-label='made']")
        workers = await page.evaluate(
            "navigator.serviceWorker.getRegistrations().then(all => all.map(one => one.scope))"
        )
        origin = url.partition("/w/")[0]
        assert workers == [url]
        assert sockets
        assert all(socket.startswith(url.replace("http", "ws", 1)) for socket in sockets)
        assert not [asking for asking in asked if not asking.startswith((origin, "data:", "blob:"))]


async def _open_terminal(page: Any) -> None:
    """As a person does: again when the IDE was not listening yet."""
    async with asyncio.timeout(PATIENCE / 1000):
        while await page.locator(TERMINAL).count() == 0:
            await page.keyboard.press("Control+Shift+Backquote")
            with suppress(playwright.TimeoutError):
                await page.wait_for_selector(TERMINAL, state="attached", timeout=5000)


async def _type(page: Any, world: DockerWorld, ws: WorkspaceId) -> None:
    async with asyncio.timeout(PATIENCE / 1000):
        while world.inside(ws, "cat /home/coder/made") != (0, "made-42\n"):
            await page.locator(TERMINAL).focus()
            await page.keyboard.type("echo made-$((6 * 7)) > made\n")
            with suppress(TimeoutError):
                await eventually(lambda: world.inside(ws, "test -s /home/coder/made")[0] == 0, 5)
