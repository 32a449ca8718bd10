"""A real Chromium for tests: Debian's, driven by playwright."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser, Error, Page, async_playwright

from tests.debian import installed

NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of its program. Installed where that is possible; tests are skipped only where it isn't."""
    found = installed("chromium", *NAMES)
    if found is None:
        pytest.skip("needs Chromium: apt-get install chromium (as root on Debian the tests do it themselves)")
    return found


@asynccontextmanager
async def launched(program: str, *options: str) -> AsyncIterator[Browser]:
    """A browser with a profile of its own, gone at the end."""
    async with async_playwright() as started:
        browser = await started.chromium.launch(executable_path=program, args=[*OPTIONS, *options])
        try:
            yield browser
        finally:
            await browser.close()


async def visit(page: Page, url: str | None = None) -> None:
    """As `page.goto`, or `page.reload`; also while other tests make and remove networks, which makes Chromium give up
    what it loads.
    """
    while True:
        try:
            await (page.goto(url) if url else page.reload())
        except Error as error:
            if "ERR_NETWORK_CHANGED" not in error.message:
                raise
        else:
            return
