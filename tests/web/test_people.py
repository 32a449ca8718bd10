"""Getting in and out, one's own account, the admin's view; and the page on a phone and in the dark."""

import aiohttp
import pytest
from playwright.async_api import FloatRect, Locator, Page, Route, expect

from domain.model import WorkspaceId
from tests.browser import visit
from tests.web.world import PASSWORD, World

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


async def test_logging_in_and_out(world: World) -> None:
    """A wrong password is said to be wrong; a right one leads to where one was going; logging out ends it."""
    username = await world.person()
    async with world.tab() as tab:
        await expect(tab.page.get_by_label("Username")).to_be_focused()
        before = await _box(tab.page.locator("form"))
        await tab.log_in(username, "wrong")
        await expect(tab.page.get_by_role("alert")).to_have_text("Wrong username or password.")
        assert await _box(tab.page.locator("form")) == before
        await tab.log_in(username)
        await expect(tab.page.get_by_role("heading", name="Workspaces")).to_be_visible()
        await tab.page.get_by_role("button", name="Your account").click()
        await expect(tab.page.get_by_text(username)).to_be_visible()
        await tab.page.get_by_role("menuitem", name="Log out").click()
        await expect(tab.page.get_by_role("heading", name="Log in")).to_be_visible()
        await visit(tab.page)
        await expect(tab.page.get_by_role("heading", name="Log in")).to_be_visible()


async def test_back_to_where_one_was(world: World) -> None:
    """A session that ends: the login page says so, and afterwards the same view is there again."""
    username = await world.person()
    async with world.tab(username, at="#/account") as tab:
        await expect(tab.page.get_by_role("heading", name="Account")).to_be_visible()
        await tab.page.get_by_role("button", name="New token").click()
        await tab.page.get_by_role("dialog").get_by_label("Name").fill("late")

        async def too_late(route: Route) -> None:
            if route.request.method == "POST":
                await world.accounts.database.execute(
                    "DELETE FROM sessions USING users WHERE users.id = user_id AND username = $1", username
                )
            await route.continue_()

        # Only then: whatever else the page asks meanwhile would find out, and close the dialog.
        await tab.page.route("**/api/v1/tokens", too_late)
        await tab.page.get_by_role("dialog").get_by_role("button", name="Make token").click()
        await expect(tab.page.get_by_text("Your session has ended")).to_be_visible()
        await tab.log_in(username)
        await expect(tab.page.get_by_role("heading", name="Account")).to_be_visible()


async def test_login_leads_nowhere_else(world: World) -> None:
    """Whoever made the link, it ends on this site."""
    elsewhere = ("https://elsewhere.invalid/", "//elsewhere.invalid/", "/\\elsewhere.invalid", "javascript:alert(1)")
    async with world.tab(await world.person()) as tab:
        for there in elsewhere:
            await visit(tab.page, f"{world.url}/?next={there}")
            await expect(tab.page.get_by_role("heading", name="Workspaces")).to_be_visible()
            assert tab.page.url == f"{world.url}/", there


async def test_login_leads_to_the_workspace(world: World) -> None:
    """Sent away from a workspace's address to log in, and back to it."""
    username = await world.person()
    async with world.tab(at="?next=%2Fw%2F00000000-0000-4000-8000-000000000000%2Ffile%3Fline%3D3") as tab:
        await tab.log_in(username)
        await tab.page.wait_for_url("**/w/00000000-0000-4000-8000-000000000000/file?line=3")
        # A workspace that is not there: the browser notes its 404.
        tab.wrong.clear()


async def test_api_tokens(world: World) -> None:
    """Made, shown once, good for a program, listed with its last use, revoked."""
    async with world.tab(await world.person(), at="#/account") as tab:
        await tab.page.get_by_role("button", name="New token").click()
        await tab.page.get_by_role("dialog").get_by_label("Name").fill("script")
        await tab.page.get_by_role("dialog").get_by_role("button", name="Make token").click()
        token = await tab.page.get_by_label("The token").input_value()
        assert await _status(world, token) == 200
        await tab.page.get_by_role("button", name="Done").click()
        # It is out of sight a moment before it is out of the page.
        await expect(tab.page.locator("dialog")).to_have_count(0)
        line = tab.page.get_by_role("list", name="API tokens").get_by_role("listitem")
        await expect(line).to_contain_text("script")
        assert token not in await tab.page.content()
        await line.get_by_role("button", name="Revoke script").click()
        await tab.page.get_by_role("dialog").get_by_role("button", name="Revoke token").click()
        await expect(tab.page.get_by_text("No tokens.")).to_be_visible()
        assert await _status(world, token) == 401


async def test_a_new_password(world: World) -> None:
    """A wrong old one is said; the right one changes it, and ends the session in another browser."""
    username = await world.person()
    async with world.tab(username, at="#/account") as tab, world.tab(username, at="#/account") as other:
        for old, new, again, said in (
            (PASSWORD, "another password", "anotherpassword", "not typed twice the same"),
            ("wrong", "another password", "another password", "The old password is wrong."),
        ):
            await _fill_password(tab.page, old, new, again)
            await expect(tab.page.get_by_role("alert")).to_contain_text(said)
        await _fill_password(tab.page, PASSWORD, "another password", "another password")
        await expect(tab.page.get_by_text("Password changed")).to_be_visible()
        await tab.page.get_by_role("link", name="Workspaces").click()
        await expect(tab.page.get_by_role("heading", name="Workspaces")).to_be_visible()
        await expect(tab.page.get_by_text("Password changed")).to_have_count(0)
        await visit(other.page)
        await expect(other.page.get_by_role("heading", name="Log in")).to_be_visible()
        await other.log_in(username, "another password")
        await expect(other.page.get_by_role("heading", name="Account")).to_be_visible()


async def test_the_admins_view(world: World) -> None:
    """Health, limits, everybody's workspaces with their owners, and who may use the installation."""
    owner = await world.person()
    await world.call("POST", "/api/v1/workspaces", owner, {"name": "somebody's", "desired_state": "STANDBY"})
    async with world.tab(await world.person(is_admin=True), at="#/admin") as tab:
        page = tab.page
        health = page.get_by_role("list", name="Health")
        for part in ("PostgreSQL", "Temporal", "Redis", "Object storage", "Coordinator"):
            await expect(health.get_by_role("listitem").filter(has_text=part)).to_contain_text("OK")
        await expect(page.get_by_role("region", name="Limits")).to_contain_text("of 100 places")
        await page.get_by_role("navigation", name="Admin").get_by_role("link", name="Workspaces").click()
        row = page.get_by_role("row").filter(has_text="somebody's")
        await expect(row).to_contain_text(owner)
        await expect(row).to_contain_text("Standby")
        await page.get_by_label("Phase").select_option("ARCHIVED")
        await expect(row).to_have_count(0)
        await page.get_by_role("navigation", name="Admin").get_by_role("link", name="Users").click()
        await page.get_by_role("button", name="New user").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Username").fill("newcomer")
        await dialog.get_by_label("Password").fill("long enough")
        await dialog.get_by_role("button", name="Make user").click()
        user = page.get_by_role("list", name="Users").get_by_role("listitem").filter(has_text="newcomer")
        await expect(user).to_contain_text("Active")
        await page.get_by_role("button", name="More for newcomer").click()
        await page.get_by_role("menuitem", name="Disable").click()
        await dialog.get_by_role("button", name="Disable user").click()
        await expect(user).to_contain_text("Disabled")


async def test_an_admin_takes_somebodys_workspace_out_of_error(world: World) -> None:
    """Told why it is there, as its owner is, they recover it once the cause is mended: it runs, and the owner reads
    who did it."""
    owner, admin = await world.person(), await world.person(is_admin=True)
    world.runtime.missing_images.add("gone:2")
    wanted = {"name": "stuck", "image_ref": "gone:2", "description": "private"}
    made = await world.call("POST", "/api/v1/workspaces", owner, wanted)
    async with world.tab(admin, at="#/admin/workspaces") as tab:
        row = tab.page.get_by_role("row").filter(has_text="stuck")
        await expect(row.locator(".pill")).to_have_text("Error")
        await expect(row).to_contain_text("ImagePullFailed")
        await row.get_by_role("button", name=f"Why {owner}’s stuck is where it is").click()
        dialog = tab.page.get_by_role("dialog", name=f"{owner}’s stuck")
        await expect(dialog.get_by_role("note")).to_contain_text("Image gone:2 can't be pulled")
        await expect(dialog).to_contain_text("Make the image available under this name; then recover.")
        await expect(dialog).to_contain_text(f"{owner} created it, to be Running")
        await dialog.get_by_role("button", name="Done").click()
        world.runtime.missing_images.discard("gone:2")
        await row.get_by_role("button", name=f"Recover {owner}’s stuck").click()
        await expect(row.locator(".pill")).to_have_text("Running")
        await expect(row.get_by_role("button", name="Recover")).to_have_count(0)
        await expect(tab.page.get_by_role("main")).not_to_contain_text("private")
        await visit(tab.page, f"{world.url}/#/")
        await expect(tab.page.get_by_text("Your first workspace")).to_be_visible()
    told = await world.call("GET", f"/api/v1/workspaces/{made['id']}/audit", owner)
    assert f"{admin} recovered it from ImagePullFailed" in [one["words"] for one in told["items"]]


async def test_an_admin_is_asked_before_they_accept_somebodys_loss(world: World) -> None:
    """By the words that the owner would read; what the server refuses is said in the dialog, and nothing was lost."""
    owner = await world.person()
    made = await world.call("POST", "/api/v1/workspaces", owner, {"name": "emptied", "desired_state": "STANDBY"})
    async with world.tab(await world.person(is_admin=True), at="#/admin/workspaces") as tab:
        row = tab.page.get_by_role("row").filter(has_text="emptied")
        await expect(row.locator(".pill")).to_have_text("Standby")
        world.runtime.drop_volume(WorkspaceId(made["id"]))
        await expect(row.locator(".pill")).to_have_text("Error")
        recover = row.get_by_role("button", name=f"Recover {owner}’s emptied")
        await recover.click()
        dialog = tab.page.get_by_role("dialog", name=f"Recover {owner}’s emptied?")
        await expect(dialog).to_contain_text("is gone, and codehub did not remove it.")
        await expect(dialog.get_by_role("list", name="What will be lost")).to_contain_text("that was in its home")
        await expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
        await dialog.get_by_role("button", name="Cancel").click()
        await expect(row).to_contain_text("DataLost")
        await recover.click()
        refused = {"error": {"code": "limit_per_user", "message": "At most 3"}}
        await tab.page.route("**/recover", lambda route: route.fulfill(status=429, json=refused), times=1)
        await dialog.get_by_role("button", name="Accept the loss").click()
        await expect(dialog.get_by_role("alert")).to_contain_text("At most 3")
        await dialog.get_by_role("button", name="Accept the loss").click()
        await expect(dialog).to_have_count(0)
        await expect(row.locator(".pill")).to_have_text("Standby")


async def test_an_admin_deletes_somebodys_workspace(world: World) -> None:
    """Asked as its owner would be, and told whose it is."""
    owner = await world.person()
    await world.call("POST", "/api/v1/workspaces", owner, {"name": "abandoned", "desired_state": "STANDBY"})
    async with world.tab(await world.person(is_admin=True), at="#/admin/workspaces") as tab:
        row = tab.page.get_by_role("row").filter(has_text="abandoned")
        await expect(row.locator(".pill")).to_have_text("Standby")
        await tab.choose(f"{owner}’s abandoned", "Delete")
        dialog = tab.page.get_by_role("dialog", name=f"Delete {owner}’s abandoned?")
        await expect(dialog.get_by_role("list", name="What will be lost")).to_contain_text("every file in it")
        # Which is their owner's to do.
        await expect(dialog).not_to_contain_text("archive it instead")
        await expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
        await dialog.get_by_role("button", name="Delete workspace").click()
        await expect(row).to_have_count(0)
    assert await world.call("GET", "/api/v1/workspaces", owner) == {"items": [], "total": 0}


async def test_what_is_down_is_seen(world: World) -> None:
    """An engine that no worker hears of, and a store that does not answer, though the API itself is ready."""
    database = world.system.parts.database
    await database.execute(
        "INSERT INTO nodes (name, engine_id, cpus, memory, seen_at) VALUES ('far', 'far', 2, 1, now()),"
        " ('silent', 'silent', 2, 1, now() - interval '1 hour')"
    )
    try:
        async with world.tab(await world.person(is_admin=True)) as tab:
            told = {"parts": {"s3": {"ready": False, "message": "does not answer"}}, "engines": []}
            health = tab.page.get_by_role("list", name="Health").get_by_role("listitem")
            await visit(tab.page, f"{world.url}/#/admin")
            await expect(health.filter(has_text="Docker on far").locator(".pill")).to_have_text("OK")
            await expect(health.filter(has_text="Docker on silent").locator(".pill")).to_have_text("Down")
            await expect(health.filter(has_text="Docker on silent")).to_contain_text("Last answered 60 min ago")
            await tab.page.route("**/api/v1/admin/health", lambda route: route.fulfill(json=told))
            await expect(health.filter(has_text="Object storage").locator(".pill")).to_have_text("Down")
            await expect(health.filter(has_text="PostgreSQL").locator(".pill")).to_have_text("OK")
    finally:
        await database.execute("DELETE FROM nodes WHERE name IN ('far', 'silent')")


async def test_the_admin_lets_somebody_in_again(world: World) -> None:
    """A forgotten password is replaced: the sessions of before end, and the new one opens the door."""
    username = await world.person()
    admins, theirs = world.tab(await world.person(is_admin=True), at="#/admin/users"), world.tab(username)
    async with admins as tab, theirs as other:
        await tab.page.get_by_role("button", name=f"More for {username}").click()
        await tab.page.get_by_role("menuitem", name="Set a new password").click()
        dialog = tab.page.get_by_role("dialog")
        await dialog.get_by_label("New password").fill("found again")
        await dialog.get_by_role("button", name="Set password").click()
        await expect(tab.page.get_by_text(f"{username} has a new password")).to_be_visible()
        await visit(other.page)
        await other.log_in(username, "found again")
        await expect(other.page.get_by_role("heading", name="Workspaces")).to_be_visible()


async def test_nodes(world: World) -> None:
    """What is drained says so, and takes workspaces again once it is uncordoned; the only one is not drained."""
    database = world.system.parts.database
    insert = "INSERT INTO nodes (name, engine_id, capacity, cpus, memory) VALUES ($1, $1, 5, 2, 2147483648)"
    await database.execute(insert, "far")
    try:
        async with world.tab(await world.person(is_admin=True), at="#/admin/nodes") as tab:
            node = tab.page.get_by_role("list", name="Nodes").get_by_role("listitem").filter(has_text="far")
            await expect(node).to_contain_text("0 of 5 homes")
            await tab.choose("far", "Drain")
            dialog = tab.page.get_by_role("dialog")
            await expect(dialog).to_contain_text("No file is lost")
            await dialog.get_by_role("button", name="Drain node").click()
            await expect(dialog).to_contain_text("It is the only node")
            await database.execute(insert, "near")
            await dialog.get_by_role("button", name="Drain node").click()
            await expect(node.locator(".pill")).to_have_text("Drained")
            await tab.choose("far", "Uncordon")
            await expect(node.locator(".pill")).to_have_text("Ready")
    finally:
        await database.execute("DELETE FROM nodes WHERE name IN ('near', 'far')")


async def test_others_have_no_admins_view(world: World) -> None:
    """Neither the way there nor, by its address, the place."""
    async with world.tab(await world.person(), at="#/admin") as tab:
        await expect(tab.page.get_by_role("heading", name="Workspaces")).to_be_visible()
        await expect(tab.page.get_by_role("link", name="Admin")).to_have_count(0)


async def test_on_a_phone(world: World) -> None:
    """Every view fits a narrow screen without scrolling sideways, and every button can be hit."""
    username = await world.person(is_admin=True)
    await world.call(
        "POST", "/api/v1/workspaces", username, {"name": "a-rather-long-name-" * 4, "description": "x" * 90}
    )
    async with world.tab(username, viewport={"width": 360, "height": 740}) as tab:
        await expect(tab.page.locator(".pill").first).to_have_text("Running")
        link = await tab.page.locator("[data-row]").get_attribute("href")
        for view in ("#/", link, "#/account", "#/admin", "#/admin/users", "#/admin/workspaces"):
            await visit(tab.page, f"{world.url}/{view}")
            await expect(tab.page.get_by_role("heading", level=1)).to_be_visible()
            wide = await tab.page.evaluate("document.documentElement.scrollWidth")
            assert wide <= 360, view
            heights = (
                "[...document.querySelectorAll('main button')].filter(b => b.offsetParent).map(b => b.offsetHeight)"
            )
            assert min(await tab.page.evaluate(heights), default=40) >= 32, view
        # Of a table, what matters most is in sight.
        await expect(tab.page.get_by_role("main").locator("td .pill").first).to_be_in_viewport(ratio=1)


async def test_on_a_phone_nothing_jumps(world: World) -> None:
    """A row is as high while it stops as before and after: the buttons of the rows below stay under the thumb."""
    username = await world.person()
    async with world.tab(username, viewport={"width": 390, "height": 844}) as tab:
        for name in ("below", "above"):
            await tab.create(name)
            await tab.shows(name, "Running")
        heights = {(await _box(tab.row("above")))["height"]}
        world.starts.gate.clear()
        try:
            await tab.row("above").get_by_role("button", name="Stop above").click()
            await tab.shows("above", "Standby")
            await expect(tab.row("above").get_by_role("link", name="Open above")).to_be_visible()
            heights.add((await _box(tab.row("above")))["height"])
            await tab.row("above").get_by_role("button", name="Start above").click()
            await tab.shows("above", "Starting")
            heights.add((await _box(tab.row("above")))["height"])
        finally:
            world.starts.gate.set()
        assert len(heights) == 1, heights


@pytest.mark.parametrize(("desired", "shown"), [("RUNNING", "\u00a0"), ("STANDBY", "STARTING to begin")])
async def test_on_a_phone_what_is_said_in_between_moves_nothing(world: World, desired: str, shown: str) -> None:
    """What was told of the moment before is not shown, and what is true for a moment takes one line, however long."""
    username, name = await world.person(), f"in-between-{desired.lower()}"
    async with world.tab(username, viewport={"width": 390, "height": 844}) as tab:
        row = await tab.create(name)
        await tab.shows(name, "Running")
        said = row.locator("[data-next]")
        await expect(said).to_contain_text("10 min")
        before = (await _box(row))["height"]
        told = await world.call("GET", f"/api/v1/workspaces/{await world.workspace(name)}/explain", username)
        waits = "STARTING to begin. If it does not within seconds, Docker or the object storage does not answer."
        told |= {"phase": "STANDBY", "desired_state": desired, "waiting_for": waits, "next_step": None}
        await tab.page.route("**/explain", lambda route: route.fulfill(json=told))
        await row.get_by_role("button", name=f"Stop {name}").click()
        await tab.shows(name, "Standby")
        await expect(said).to_have_text(shown)
        assert (await _box(row))["height"] == before
        await tab.page.unroute("**/explain")
        await row.get_by_role("button", name=f"Start {name}").click()
        await expect(said).to_contain_text("10 min")


async def test_light_and_dark(world: World) -> None:
    """As the system has it, until a person chooses; the choice is kept."""
    async with world.tab(await world.person(), color_scheme="dark") as tab:
        ground = "getComputedStyle(document.body).backgroundColor"
        dark = await tab.page.evaluate(ground)
        await tab.page.emulate_media(color_scheme="light")
        light = await tab.page.evaluate(ground)
        assert dark != light
        await tab.page.get_by_role("button", name="Theme: system").click()
        await tab.page.get_by_role("button", name="Theme: light").click()
        assert await tab.page.evaluate(ground) == dark
        await visit(tab.page)
        await expect(tab.page.get_by_role("button", name="Theme: dark")).to_be_visible()
        assert await tab.page.evaluate(ground) == dark


async def _box(part: Locator) -> FloatRect:
    found = await part.bounding_box()
    assert found
    return found


async def _status(world: World, token: str) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession() as session, session.get(f"{world.url}/api/v1/session", headers=headers) as got:
        return got.status


async def _fill_password(page: Page, old: str, new: str, again: str) -> None:
    await page.get_by_label("Old password").fill(old)
    await page.get_by_label("New password", exact=True).fill(new)
    await page.get_by_label("New password again").fill(again)
    await page.get_by_role("button", name="Change password").click()
