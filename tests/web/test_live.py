"""What happens elsewhere shows here: other browsers, other programs, the system itself, and a server that was away."""

import pytest
from playwright.async_api import Route, expect

from domain.model import DesiredState
from tests.browser import visit
from tests.web.world import World

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


async def test_two_browsers_at_once(world: World) -> None:
    """What one does the other sees, without asking; and a third person sees nothing of it."""
    username = await world.person()
    async with world.tab(username) as here, world.tab(username) as there, world.tab(await world.person()) as stranger:
        await expect(there.page.get_by_text("Your first workspace")).to_be_visible()
        await here.create("shared")
        await there.shows("shared", "Running")
        await there.row("shared").get_by_role("button", name="Stop shared").click()
        await here.shows("shared", "Standby")
        await here.choose("shared", "Rename")
        await here.page.get_by_role("dialog").get_by_label("Name").fill("renamed")
        await here.page.get_by_role("dialog").get_by_role("button", name="Save").click()
        await there.shows("renamed", "Standby")
        await there.choose("renamed", "Delete")
        await there.page.get_by_role("dialog").get_by_role("button", name="Delete workspace").click()
        await expect(here.row("renamed")).to_have_count(0)
        await expect(stranger.page.get_by_text("Your first workspace")).to_be_visible()


async def test_what_happens_by_itself(world: World) -> None:
    """A container that died, a command of the same person, a TTL that expired: shown as they happen."""
    username = await world.person()
    async with world.tab(username) as tab:
        await tab.create("alive")
        await tab.shows("alive", "Running")
        workspace = await world.workspace("alive")
        world.starts.gate.clear()
        try:
            world.runtime.kill_container(workspace)
            await tab.shows("alive", "Starting")
        finally:
            world.starts.gate.set()
        await tab.shows("alive", "Running")
        await world.call("PATCH", f"/api/v1/workspaces/{workspace}", username, {"desired_state": "STANDBY"})
        await tab.shows("alive", "Standby")
        await world.system.want(workspace, DesiredState.ARCHIVED)
        await tab.shows("alive", "Archived")


async def test_the_api_restarted(world: World) -> None:
    """While it is away the page says so and keeps what it knows; once it is back, everything is as it is by then."""
    async with world.tab(await world.person()) as tab:
        for name in ("stays", "changes", "goes"):
            await tab.create(name)
            await tab.shows(name, "Running")
        await expect(tab.page.get_by_text("Live", exact=True)).to_be_visible()
        changes, goes = await world.workspace("changes"), await world.workspace("goes")
        await world.stop_api()
        try:
            await expect(tab.page.get_by_text("Reconnecting…")).to_be_visible()
            await tab.shows("stays", "Running")
            await tab.row("stays").get_by_role("button", name="Stop stays").click()
            await expect(tab.page.get_by_role("alert")).to_contain_text("codehub does not answer")
            await world.system.want(changes, DesiredState.STANDBY)
            await world.system.delete(goes)
            await world.system.until(changes, lambda ws: ws.phase == "STANDBY")
            await world.system.until(goes, lambda ws: ws.phase == "DELETED")
        finally:
            await world.start_api()
        await tab.shows("changes", "Standby")
        await expect(tab.row("goes")).to_have_count(0)
        await expect(tab.page.get_by_text("Live", exact=True)).to_be_visible()
        await tab.row("stays").get_by_role("button", name="Stop stays").click()
        await tab.shows("stays", "Standby")


async def test_without_events(world: World) -> None:
    """No event gets through: it asks, and shows the same."""
    username = await world.person()
    async with world.tab(username) as tab:
        await expect(tab.page.get_by_text("Your first workspace")).to_be_visible()
        await tab.page.route("**/api/v1/events", lambda route: route.abort())
        await visit(tab.page)
        await expect(tab.page.get_by_text("Reconnecting…")).to_be_visible()
        await world.call("POST", "/api/v1/workspaces", username, {"name": "silent"})
        await tab.shows("silent", "Running")


async def test_on_a_phone_too_a_lost_connection_is_said(world: World) -> None:
    """In words, and without moving what is under a thumb."""
    async with world.tab(await world.person(), viewport={"width": 360, "height": 740}) as tab:
        word = tab.page.locator(".live .word")
        heading = tab.page.get_by_role("heading", name="Workspaces")
        await expect(tab.page.locator(".live")).to_have_attribute("data-live", "live")
        await expect(word).to_be_hidden()
        before = await heading.bounding_box()
        await tab.page.route("**/api/v1/events", lambda route: route.abort())
        await visit(tab.page)
        await expect(word).to_have_text("Reconnecting… What you see may be out of date.")
        await expect(word).to_be_in_viewport(ratio=1)
        assert await heading.bounding_box() == before


async def test_what_did_not_arrive_is_asked_for_again(world: World) -> None:
    """A part of the page, or an answer, that was lost on the way, as when a laptop changes networks: no blank page."""
    lost = {"main.js", "/api/v1/workspaces?limit=200&offset=0"}

    async def lose(route: Route) -> None:
        for end in [end for end in lost if route.request.url.endswith(end)]:
            lost.discard(end)
            await route.abort()
            return
        await route.continue_()

    async with world.tab(await world.person()) as tab:
        await tab.page.route("**/*", lose)
        await visit(tab.page)
        await expect(tab.page.get_by_text("Your first workspace")).to_be_visible()
        assert not lost
