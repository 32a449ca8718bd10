"""The dashboard in a real browser: each action on a workspace, as a person does it."""

import asyncio
import re

import pytest
from playwright.async_api import Route, expect

from adapters.redis.events import Event, EventKind
from domain.model import ConditionName, UserId
from domain.observation import Presence
from tests.events.telling import again_and_again
from tests.web.world import HISTORIES, Tab, World

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


async def test_the_first_workspace(world: World) -> None:
    """An empty list says what a workspace is and makes one; the row shows how it comes up, and leads into the IDE."""
    async with world.tab(await world.person()) as tab:
        await expect(tab.page.get_by_text("Your first workspace")).to_be_visible()
        await tab.page.get_by_role("button", name="Create a workspace").click()
        dialog = tab.page.get_by_role("dialog", name="New workspace")
        await dialog.get_by_role("button", name="Create").click()
        await expect(dialog).to_be_visible()
        await dialog.get_by_label("Name").fill("first")
        await dialog.get_by_role("button", name="Create").click()
        await tab.shows("first", "Running")
        await expect(tab.page.get_by_text("1 running, 3 allowed")).to_be_visible()
        opens = tab.row("first").get_by_role("link", name="Open first")
        await expect(opens).to_have_attribute("href", f"/w/{await world.workspace('first')}/")
        await expect(tab.row("first")).to_contain_text(re.compile(r"Sleeps in \d+ min"))


async def test_stop_start_archive_restore(world: World) -> None:
    """Every way down and up, each by its button, and what happens by itself next."""
    async with world.tab(await world.person()) as tab:
        row = await tab.create("life")
        await tab.shows("life", "Running")
        await row.get_by_role("button", name="Stop life").click()
        await tab.shows("life", "Standby")
        await expect(row).to_contain_text(re.compile(r"Archived in \d+ min"))
        await expect(row).to_contain_text("Last used")
        await expect(row.get_by_role("link", name="Open life")).to_have_attribute(
            "href", f"/w/{await world.workspace('life')}/"
        )
        await row.get_by_role("button", name="Start life").click()
        await tab.shows("life", "Running")
        await tab.choose("life", "Archive")
        await tab.shows("life", "Archived")
        await expect(row).to_contain_text("Kept in the archive")
        await row.get_by_role("button", name="Restore life").click()
        await tab.shows("life", "Running")


async def test_deleting_says_what_is_lost(world: World) -> None:
    """Dismissed, nothing happens; confirmed, it goes, and its row with it."""
    async with world.tab(await world.person()) as tab:
        await tab.create("doomed")
        await tab.shows("doomed", "Running")
        await tab.choose("doomed", "Delete")
        dialog = tab.page.get_by_role("dialog", name="Delete doomed?")
        lost = dialog.get_by_role("list", name="What will be lost")
        await expect(lost).to_contain_text("every file in it")
        await expect(lost).to_contain_text("It is running")
        await expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
        await tab.page.keyboard.press("Escape")
        await expect(dialog).to_have_count(0)
        await tab.shows("doomed", "Running")
        await tab.choose("doomed", "Delete")
        await dialog.get_by_role("button", name="Delete workspace").click()
        await expect(tab.row("doomed")).to_have_count(0)
        await expect(tab.page.get_by_text("Your first workspace")).to_be_visible()


async def test_an_error_says_what_to_do(world: World) -> None:
    """The reason, what to do about it, and a button that does it once it is mended."""
    world.runtime.missing_images.add("gone:1")
    async with world.tab(await world.person()) as tab:
        await tab.page.keyboard.press("n")
        dialog = tab.page.get_by_role("dialog")
        await dialog.get_by_label("Name").fill("broken")
        await dialog.get_by_text("Image and idle times").click()
        await dialog.get_by_label("Image", exact=True).fill("gone:1")
        await dialog.get_by_role("button", name="Create").click()
        await tab.shows("broken", "Error")
        note = tab.row("broken").get_by_role("note")
        await expect(note).to_contain_text("ImagePullFailed")
        await expect(note).to_contain_text("Image gone:1 can't be pulled")
        await expect(note).to_contain_text("Make the image available under this name; then recover.")
        await expect(tab.page.get_by_role("button", name="Needs you")).to_be_visible()
        world.runtime.missing_images.discard("gone:1")
        await tab.row("broken").get_by_role("button", name="Recover broken").click()
        await tab.shows("broken", "Running")


async def test_accepting_a_loss_is_asked_for(world: World) -> None:
    """A home that vanished: recovering gives it up for good, so a person is told so first."""
    async with world.tab(await world.person()) as tab:
        await tab.create("robbed")
        await tab.shows("robbed", "Running")
        robbed = await world.workspace("robbed")
        # No engine gives up a volume that is in use.
        world.runtime.drop_container(robbed)
        world.runtime.drop_volume(robbed)
        await tab.shows("robbed", "Error")
        await tab.row("robbed").get_by_role("button", name="Recover robbed").click()
        dialog = tab.page.get_by_role("dialog", name="Recover robbed?")
        await expect(dialog).to_contain_text("It goes on with an empty home")
        await expect(dialog.get_by_role("list", name="What will be lost")).to_contain_text("that was in its home")
        await dialog.get_by_role("button", name="Cancel").click()
        await tab.shows("robbed", "Error")
        await tab.row("robbed").get_by_role("button", name="Recover robbed").click()
        await dialog.get_by_role("button", name="Accept the loss").click()
        await expect(dialog).to_have_count(0)
        await tab.shows("robbed", "Running")
        seen = await world.runtime.observe(robbed, probe=False)
        assert seen.volume is Presence.PRESENT


async def test_what_was_put_back_is_said(world: World) -> None:
    """The dialog says what is there now, also where the list was drawn before; of an archive, from when it is."""
    async with world.tab(await world.person()) as tab:
        await tab.create("kept")
        await tab.shows("kept", "Running")
        kept = await world.workspace("kept")
        await tab.choose("kept", "Archive")
        await tab.shows("kept", "Archived")
        await tab.row("kept").get_by_role("button", name="Restore kept").click()
        await tab.shows("kept", "Running")
        volume = world.runtime.volumes[kept]
        world.runtime.drop_container(kept)
        world.runtime.drop_volume(kept)
        await tab.shows("kept", "Error")
        recover = tab.row("kept").get_by_role("button", name="Recover kept")
        await recover.click()
        dialog = tab.page.get_by_role("dialog", name="Recover kept?")
        given_up = dialog.get_by_role("list", name="What will be lost")
        await expect(given_up).to_contain_text(re.compile(r"since its last archive, of [-\d]{10} \d\d:\d\d UTC"))
        await dialog.get_by_role("button", name="Cancel").click()
        world.runtime.volumes[kept] = volume
        world.runtime._changed(kept)
        await world.system.until(kept, lambda ws: ws.condition(ConditionName.VOLUME_READY), 60)
        await recover.click()
        await expect(dialog).to_contain_text("Its volume is there again")
        await expect(given_up).to_have_count(0)
        await dialog.get_by_role("button", name="Recover", exact=True).click()
        await tab.shows("kept", "Running")
        assert world.runtime.volumes[kept] is volume


async def test_reasons_follow_each_operation(world: World) -> None:
    """On the way through several operations, what is said is said of the one that is under way."""
    username = await world.person()
    await world.call("POST", "/api/v1/workspaces", username, {"name": "far", "desired_state": "ARCHIVED"})
    async with world.tab(username) as tab:
        await tab.shows("far", "Archived")
        await tab.page.get_by_role("link", name="far").click()
        reasons = tab.page.get_by_role("region", name="What is going on")
        await expect(reasons).to_contain_text("Its home is in the object storage")
        world.starts.gate.clear()
        try:
            await tab.page.get_by_role("button", name="Restore far").click()
            await world.system.until(await world.workspace("far"), lambda ws: ws.operation == "STARTING", 60)
            # Sooner than the next round of looking at everything.
            await expect(reasons).to_contain_text("STARTING: the container is being started", timeout=20_000)
            line = tab.page.get_by_role("list", name="Operation log").get_by_role("listitem").first
            await expect(line).to_contain_text("Under way")
            await expect(line).to_contain_text(re.compile(r"[1-9]\.\d s"))
        finally:
            world.starts.gate.set()
        await expect(reasons).to_contain_text("Its container runs on its volume and answers.")


async def test_an_answer_that_comes_late_is_not_shown(world: World) -> None:
    """Several questions may be under way at once: what is said is what was asked for last."""
    username = await world.person()
    await world.call("POST", "/api/v1/workspaces", username, {"name": "late", "desired_state": "STANDBY"})
    async with world.tab(username) as tab:
        await tab.shows("late", "Standby")
        await tab.page.get_by_role("link", name="late", exact=True).click()
        reasons = tab.page.get_by_role("region", name="What is going on")
        await expect(reasons).to_contain_text("no container runs on it")
        before = await world.call("GET", f"/api/v1/workspaces/{await world.workspace('late')}/explain", username)
        held = await _held(tab, "**/explain")
        await tab.page.get_by_role("button", name="Start late").click()
        await expect(reasons).to_contain_text("Its container runs on its volume and answers.")
        async with tab.page.expect_event("requestfinished", lambda ended: ended.url.endswith("/explain")):
            await (await asyncio.wait_for(held, 60)).fulfill(json=before)
        await tab.page.evaluate("() => new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn, 100)))")
        # As it is now: a later question would have brought it back.
        assert "Its container runs on its volume and answers." in await reasons.inner_text()


async def test_name_memo_and_ttls(world: World) -> None:
    """Changed in one dialog; a TTL changes when it sleeps, at once."""
    async with world.tab(await world.person()) as tab:
        await tab.create("draft")
        await tab.shows("draft", "Running")
        await tab.choose("draft", "Rename")
        dialog = tab.page.get_by_role("dialog", name="Edit draft")
        await dialog.get_by_label("Name").fill("final")
        await dialog.get_by_label("Memo").fill("two\nlines")
        await dialog.get_by_label("Sleep when idle", exact=True).select_option("own")
        await dialog.get_by_label("Sleep when idle: how many").fill("2")
        await dialog.get_by_label("Sleep when idle: unit").select_option("hours")
        await dialog.get_by_role("button", name="Save").click()
        # Sooner than the next round of looking at everything.
        await expect(tab.row("final")).to_contain_text(re.compile(r"Sleeps in (2 h|1 h \d\d min)"), timeout=15_000)
        await tab.choose("final", "Rename")
        dialog = tab.page.get_by_role("dialog", name="Edit final")
        await expect(dialog.get_by_label("Memo")).to_have_value("two\nlines")
        await expect(dialog.get_by_label("Sleep when idle: how many")).to_have_value("2")
        await dialog.get_by_label("Sleep when idle", exact=True).select_option("never")
        await dialog.get_by_role("button", name="Save").click()
        await expect(tab.row("final")).to_contain_text("Stays running")


async def test_what_is_refused_is_said(world: World) -> None:
    """A name that is taken, in the dialog; a limit, in a message that says what to do."""
    async with world.tab(await world.person()) as tab:
        for name in ("one", "two", "three"):
            await tab.create(name)
            await tab.shows(name, "Running")
        await tab.create("four", start=False)
        await tab.shows("four", "Standby")
        await tab.row("four").get_by_role("button", name="Start four").click()
        message = tab.page.get_by_role("alert")
        await expect(message).to_contain_text("four could not be started")
        await expect(message).to_contain_text("Stop one of these first: ")
        for name in ("one", "two", "three"):
            await expect(message).to_contain_text(name)
        await message.get_by_role("button", name="Dismiss").click()
        await expect(tab.row("four").get_by_role("button", name="Start four")).to_be_enabled()
        await tab.page.keyboard.press("n")
        dialog = tab.page.get_by_role("dialog")
        await dialog.get_by_label("Name").fill("four")
        await dialog.get_by_label("Start it right away").uncheck()
        await dialog.get_by_role("button", name="Create").click()
        await expect(dialog.get_by_role("alert")).to_contain_text("another workspace of this name")


async def test_what_is_under_way(world: World) -> None:
    """The operation, where it leads, how far it is and how long it takes; and no button that would be refused."""
    username = await world.person()
    async with world.tab(username) as tab:
        await tab.create("slow", start=False)
        await tab.shows("slow", "Standby")
        world.starts.gate.clear()
        try:
            await tab.row("slow").get_by_role("button", name="Start slow").click()
            await tab.shows("slow", "Starting")
            await expect(tab.row("slow")).to_contain_text("→ Running")
            await expect(tab.row("slow").get_by_role("progressbar")).to_be_visible()
            await expect(tab.row("slow").get_by_role("button", name="Start slow")).to_have_count(0)
            # Counted alike in both places.
            await expect(tab.page.get_by_text("1 running, 3 allowed")).to_be_visible()
            await expect(tab.page.get_by_role("button", name="Running 1")).to_be_visible()
            await expect(tab.page.get_by_role("button", name="Standby")).to_have_count(0)
            workspace = await world.system.row(await world.workspace("slow"))
            told = {"bytes_done": 30, "bytes_total": 120, "bytes_per_second": 2_000_000, "eta_seconds": 40.0}
            event = {"operation": "STARTING", **told}
            owner = UserId(workspace.owner_user_id)
            said = re.compile(r"25 % · 30 B of 120 B · 2.0 MB/s · \d+ s left")
            async with again_and_again(world.bus, Event(EventKind.PROGRESS, owner, workspace.id, event)):
                await expect(tab.row("slow").get_by_role("progressbar")).to_have_attribute("value", "25")
                await expect(tab.row("slow")).to_contain_text(said)
            event |= {"stage": "VERIFYING", "bytes_done": 60}
            said = re.compile(r"Verifying the stored copy · 50 % · 2.0 MB/s · \d+ s left")
            async with again_and_again(world.bus, Event(EventKind.PROGRESS, owner, workspace.id, event)):
                await expect(tab.row("slow")).to_contain_text(said)
        finally:
            world.starts.gate.set()
        await tab.shows("slow", "Running")


async def test_who_comes_later_sees_as_much(world: World) -> None:
    """Rate, time left and stage are there before the first event, and while none comes."""
    username = await world.person()
    async with world.tab(username) as tab:
        await tab.create("later", start=False)
        await tab.shows("later", "Standby")
        world.starts.gate.clear()
        try:
            await tab.row("later").get_by_role("button", name="Start later").click()
            await tab.shows("later", "Starting")
            await world.begun("later")
            await world.system.parts.database.execute(
                "UPDATE operations SET bytes_done = 60, bytes_total = 120, stage = 'VERIFYING', bytes_per_second = 3,"
                " told_at = now() + interval '1 hour' WHERE workspace_id = $1 AND outcome IS NULL",
                await world.workspace("later"),
            )
            await tab.page.reload()
            said = re.compile(r"Verifying the stored copy · 50 % · 3 B/s · (20|1\d) s left")
            await expect(tab.row("later")).to_contain_text(said)
        finally:
            world.starts.gate.set()
        await tab.shows("later", "Running")


async def test_one_workspace_in_detail(world: World) -> None:
    """Why it is where it is, what was observed, what was done with it, and its history in the Temporal UI."""
    async with world.tab(await world.person()) as tab:
        await tab.create("watched")
        await tab.shows("watched", "Running")
        await tab.page.get_by_role("link", name="watched", exact=True).click()
        await expect(tab.page.get_by_role("heading", name="watched")).to_be_visible()
        await expect(tab.page).to_have_title("watched · codehub")
        await expect(tab.page.get_by_role("region", name="What is going on")).to_contain_text("answers")
        conditions = tab.page.get_by_role("region", name="Conditions")
        await expect(conditions.get_by_role("listitem").filter(has_text="Container is ready")).to_contain_text("Yes")
        log = tab.page.get_by_role("region", name="Operation log").get_by_role("listitem")
        await expect(log).to_have_count(2)
        await expect(log.first).to_contain_text("Starting")
        await expect(log.first).to_contain_text("Succeeded")
        await expect(log.first).to_contain_text("created it, to be Running")
        history = tab.page.get_by_role("link", name="Temporal history")
        namespace = world.settings.temporal_namespace
        url = f"{HISTORIES}/namespaces/{namespace}/workflows/ws-{await world.workspace('watched')}"
        await expect(history).to_have_attribute("href", url)
        await tab.page.get_by_role("button", name="Stop watched").click()
        await expect(log).to_have_count(3)
        await expect(log.first).to_contain_text("Stopping")
        await tab.page.get_by_role("link", name="Workspaces", exact=True).first.click()
        await tab.shows("watched", "Standby")


async def test_names_are_text(world: World) -> None:
    """Whatever a name or memo looks like, it is shown as it was written, and nothing of it is carried out."""
    evil = "<img src=x onerror=alert(1)> & <b>"
    async with world.tab(await world.person()) as tab:
        await tab.create(evil, start=False)
        await tab.shows(evil, "Standby")
        await tab.page.get_by_role("link", name=evil, exact=True).click()
        await expect(tab.page.get_by_role("heading", level=1)).to_have_text(evil)
        assert await tab.page.locator("main img, main b:has-text('alert')").count() == 0


async def test_keys(world: World) -> None:
    """All of it without a mouse."""
    async with world.tab(await world.person()) as tab:
        await tab.create("alpha", start=False)
        await tab.create("beta", start=False)
        keyboard = tab.page.keyboard
        await keyboard.press("?")
        shortcuts = tab.page.get_by_role("dialog", name="Keyboard shortcuts")
        await expect(shortcuts).to_be_visible()
        await keyboard.press("Escape")
        await expect(shortcuts).to_have_count(0)
        await keyboard.press("/")
        search = tab.page.get_by_role("searchbox", name="Search workspaces")
        await expect(search).to_be_focused()
        await keyboard.type("alp")
        await expect(tab.row("beta")).to_have_count(0)
        await keyboard.press("Escape")
        await expect(tab.row("beta")).to_be_visible()
        await keyboard.press("j")
        await expect(tab.page.get_by_role("link", name="beta", exact=True)).to_be_focused()
        await keyboard.press("j")
        await expect(tab.page.get_by_role("link", name="alpha", exact=True)).to_be_focused()
        await tab.page.get_by_role("button", name="More for alpha").focus()
        await keyboard.press("Enter")
        await expect(tab.page.get_by_role("menuitem", name="Rename, memo, idle times")).to_be_focused()
        await keyboard.press("ArrowDown")
        await keyboard.press("Enter")
        await expect(tab.page.get_by_role("heading", name="alpha")).to_be_visible()


async def test_keys_wait_for_an_open_dialog(world: World) -> None:
    """While its answer is on the way, nothing in a dialog has the focus: the page behind it does not act."""
    async with world.tab(await world.person()) as tab:
        await tab.page.get_by_role("button", name="New workspace").first.click()
        dialog = tab.page.get_by_role("dialog", name="New workspace")
        await dialog.get_by_label("Name").fill("slow")
        held = await _held(tab, "**/api/v1/workspaces")
        await dialog.get_by_role("button", name="Create").click()
        route = await asyncio.wait_for(held, 60)
        await tab.page.wait_for_function("() => document.activeElement === document.body")
        for key in ("?", "n"):
            await tab.page.keyboard.press(key)
        await expect(tab.page.get_by_role("dialog")).to_have_count(1)
        await route.continue_()
        await expect(dialog).to_have_count(0)
        await expect(tab.row("slow")).to_be_visible()


async def _held(tab: Tab, url: str) -> asyncio.Future[Route]:
    """The next request to there, which gets no answer until somebody gives it one."""
    held: asyncio.Future[Route] = asyncio.get_running_loop().create_future()

    async def hold(route: Route) -> None:
        held.set_result(route)

    await tab.page.route(url, hold, times=1)
    return held
