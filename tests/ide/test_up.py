"""`codehub up` without a single setting for workspaces: whoever logs in has a real IDE."""

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import expect

from tests.browser import launched, visit
from tests.cli.installation import PASSWORD, Installation, leave_nothing
from tests.ide.test_browser import IDE, PATIENCE
from tests.services import Services, own_data
from tests.web.world import Tab

# The first run on a machine builds the image.
pytestmark = [pytest.mark.docker, pytest.mark.timeout(1800)]


@pytest.fixture
async def installation(services: Services, docker_host: str, ide_image: str) -> AsyncIterator[Installation]:
    """On an engine that has the image under its recipe's name, as after a first `make up`."""
    with own_data(services.root) as data, Installation(data, data / "config", DOCKER_HOST=docker_host) as made:
        yield made
        await leave_nothing(made)


async def test_the_ide_opens(installation: Installation, chromium: str) -> None:
    """The image and the limits that it has by default are enough for the IDE to come up in the browser."""
    expect.set_options(timeout=PATIENCE)
    async with launched(chromium) as browser:
        page = await browser.new_page()
        page.set_default_timeout(PATIENCE)
        await visit(page, installation.url)
        tab = Tab(page, [])
        await tab.log_in("admin", PASSWORD)
        row = await tab.create("first")
        await tab.shows("first", "Running")
        address = await row.get_by_role("link", name="Open first").get_attribute("href")
        await visit(page, f"{installation.url}{address}")
        await page.wait_for_selector(IDE)
    await installation.log_in()
    shown = (await installation.person("show", "first", "--json")).json
    assert (shown["image_ref"], shown["phase"]) == ("codehub-ide:latest", "RUNNING")
