"""What a person does, in a real browser, with the real IDE: from logging in to finding a file again at the end."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from playwright.async_api import Page, expect
from playwright.async_api import TimeoutError as NotSeen

from domain.model import DesiredState, Phase, WorkspaceId
from tests.browser import launched, visit
from tests.ide.hub import Hub
from tests.processes.deployment import PASSWORD
from tests.web.world import Tab

# The first run on a machine builds the image.
pytestmark = [pytest.mark.docker, pytest.mark.timeout(1800)]

IDE = ".monaco-workbench .explorer-folders-view"
TERMINAL = ".terminal-wrapper.active .xterm-helper-textarea"
MADE = ".explorer-folders-view [aria-label='made']"
PATIENCE = 180_000
"""Milliseconds: the machine may be busy."""
UNTOUCHED = 15
"""Seconds. Shorter than an IDE's keep-alives would allow if they counted, longer than it is quiet by chance."""


async def test_a_persons_day(hub: Hub, chromium: str) -> None:
    """Log in, create a workspace, watch it load, run a command in the IDE's terminal; the file is there again after it
    fell asleep under an open but untouched tab and was woken by a visit, and after archive and restore.
    """
    expect.set_options(timeout=PATIENCE)
    async with launched(chromium) as browser:
        page = await browser.new_page()
        page.set_default_timeout(PATIENCE)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("websocket", lambda opened: asked.append(opened.url.replace("ws", "http", 1)))
        ws = await _created(page, hub)
        url = f"{hub.url}/w/{ws}/"

        await visit(page, url)
        await page.wait_for_selector("main[data-page=following]")
        await _lands(page, hub, ws)
        await _command(page, hub, ws)
        await page.wait_for_selector(MADE)
        workers = "navigator.serviceWorker.getRegistrations().then(all => all.map(one => one.scope))"
        assert await page.evaluate(workers) == [url]

        await hub.patch(ws, standby_ttl_seconds=UNTOUCHED)
        await hub.until_phase(ws, Phase.STANDBY)
        await hub.patch(ws, standby_ttl_seconds=0)
        await visit(page, url)
        await page.wait_for_selector("main[data-page=following]")
        await _lands(page, hub, ws)
        await page.wait_for_selector(MADE)

        await hub.patch(ws, desired_state=DesiredState.ARCHIVED)
        await hub.until_phase(ws, Phase.ARCHIVED)
        await visit(page, url)
        await page.click("main[data-page=restore_needed] button:has-text('Restore')")
        await _lands(page, hub, ws)
        await page.wait_for_selector(MADE)
        assert hub.inside(ws, "cat /home/coder/made") == (0, "made-42\n")
        assert not [asking for asking in asked if not asking.startswith((hub.url, "data:", "blob:"))]


async def _created(page: Page, hub: Hub) -> WorkspaceId:
    await visit(page, f"{hub.url}/")
    tab = Tab(page, [])
    await tab.log_in("admin", PASSWORD)
    await tab.create("my work")
    return await hub.workspace("my work")


async def _lands(page: Page, hub: Hub, ws: WorkspaceId) -> None:
    """In the IDE, at the very address that was asked for."""
    await page.wait_for_selector(IDE)
    assert page.url.startswith(f"{hub.url}/w/{ws}/")


async def _command(page: Page, hub: Hub, ws: WorkspaceId) -> None:
    """As a person does: again when the IDE was not listening yet."""
    async with asyncio.timeout(PATIENCE / 1000):
        while await page.locator(TERMINAL).count() == 0:
            await page.keyboard.press("Control+Shift+Backquote")
            with suppress(NotSeen):
                await page.wait_for_selector(TERMINAL, state="attached", timeout=5000)
        while hub.inside(ws, "cat /home/coder/made") != (0, "made-42\n"):
            await page.locator(TERMINAL).focus()
            await page.keyboard.type("echo made-$((6 * 7)) > made\n")
            await _made(hub, ws)


async def _made(hub: Hub, ws: WorkspaceId) -> Any:
    with suppress(TimeoutError):
        async with asyncio.timeout(10):
            while hub.inside(ws, "test -s /home/coder/made")[0]:
                await asyncio.sleep(0.2)
