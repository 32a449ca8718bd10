"""The pages in a real browser: each leads where it says, by itself or by its button."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from adapters.redis.events import Event, EventBus, EventKind
from domain.limits import Limits
from domain.model import WorkspaceId
from tests.browser import launched, visit
from tests.events.telling import again_and_again
from tests.proxy.world import Person, Workspace, World, comes, serving, until

pytestmark = pytest.mark.timeout(300)

PATIENCE = 30_000
IDE = b"<!doctype html><title>IDE</title><h1>The IDE</h1>"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(chromium: str) -> AsyncIterator[Browser]:
    async with launched(chromium) as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def page(browser: Browser, world: World, alice: Person, ws: Workspace) -> AsyncIterator[Any]:
    """A tab of alice's. Whatever its console says of an error, or of a refused policy, fails the test."""
    ws.answer = _page_of(IDE)
    async for tab in _tab(browser, world.origin, alice):
        yield tab


def _page_of(html: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%b" % (len(html), html)


async def _tab(browser: Browser, origin: str, person: Person) -> AsyncIterator[Any]:
    context = await browser.new_context()
    await context.add_cookies(
        [{"name": "session", "value": person.secret, "url": origin, "httpOnly": True, "sameSite": "Lax"}]
    )
    tab = await context.new_page()
    tab.set_default_timeout(PATIENCE)
    wrong: list[str] = []
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("console", lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None)
    yield tab
    # A tab that is just loading may keep a context from closing for minutes; the browser ends in any case.
    with suppress(TimeoutError):
        async with asyncio.timeout(20):
            await context.close()
    assert wrong == []


async def _shows(page: Any, kind: str) -> None:
    await page.wait_for_selector(f"main[data-page={kind}]")


async def _opened(page: Any, url: str) -> None:
    await page.wait_for_selector("h1:has-text('The IDE')")
    assert page.url == url


async def _tell(world: World, workspace_id: str, person: Person) -> None:
    await EventBus(world.redis).publish([Event(EventKind.UPDATED, person.id, WorkspaceId(workspace_id))])


async def test_from_sleep_to_the_ide(world: World, alice: Person, ws: Workspace, page: Any) -> None:
    """Opening it wakes it; the page shows what goes on and opens the very address that was asked for."""
    workspace_id = await world.row(alice, ws.endpoint, phase="STANDBY", desired_state="STANDBY", name="asleep")
    url = f"{world.origin}/w/{workspace_id}/a/b?c=d#e"
    await visit(page, url)
    await _shows(page, "following")
    assert world.wakes.woken.count(WorkspaceId(workspace_id)) == 1
    await page.wait_for_selector("li.now:has-text('Start')")
    await world.busy(workspace_id, "STARTING")
    await _tell(world, workspace_id, alice)
    await page.wait_for_selector(".badge:has-text('Starting')")
    await world.update(workspace_id, phase="RUNNING", operation="NONE", op_id=None, op_started_at=None)
    await _tell(world, workspace_id, alice)
    await _opened(page, url)


async def test_without_events(world: World, alice: Person, ws: Workspace, page: Any) -> None:
    """No event comes: it asks, and opens all the same."""
    workspace_id = await world.row(alice, ws.endpoint, phase="STANDBY", desired_state="STANDBY")
    await page.route("**/api/v1/events", lambda route: route.abort())
    await visit(page, f"{world.origin}/w/{workspace_id}/")
    await _shows(page, "following")
    await world.update(workspace_id, phase="RUNNING")
    await _opened(page, f"{world.origin}/w/{workspace_id}/")


async def test_progress(world: World, alice: Person, page: Any) -> None:
    """A restore shows how far it has come."""
    workspace_id = await world.row(
        alice, phase="ARCHIVED", desired_state="RUNNING", home_ctx={"restoring": "k"}, archive_key="k"
    )
    await world.busy(workspace_id, "RESTORING")
    await world.deps.database.execute(
        "UPDATE operations SET bytes_done = 250000000, bytes_total = 1000000000 WHERE workspace_id = $1", workspace_id
    )
    await visit(page, f"{world.origin}/w/{workspace_id}/")
    await page.wait_for_selector("#bytes:has-text('250 MB of 1.0 GB')")
    details: dict[str, Any] = {"bytes_done": 500_000_000, "bytes_total": 1_000_000_000, "attempt": 1}
    event = Event(EventKind.PROGRESS, alice.id, WorkspaceId(workspace_id), details)
    # The page shows what it asked for before it listens.
    async with again_and_again(EventBus(world.redis), event):
        await page.wait_for_selector("#bytes:has-text('500 MB of 1.0 GB')")
        await page.wait_for_function("document.querySelector('.bar i').style.width === '50%'")
    details |= {"stage": "VERIFYING", "bytes_per_second": 25_000_000, "eta_seconds": 20.0}
    async with again_and_again(EventBus(world.redis), event):
        said = "Verifying the stored copy, 500 MB of 1.0 GB, 25.0 MB/s, 20 s left"
        await page.wait_for_selector(f"#bytes:has-text('{said}')")


async def test_restoring_is_a_persons_decision(world: World, alice: Person, page: Any) -> None:
    """The button asks for RUNNING, and the page follows from there."""
    workspace_id = await world.row(alice, phase="ARCHIVED", desired_state="ARCHIVED")
    await visit(page, f"{world.origin}/w/{workspace_id}/")
    await _shows(page, "restore_needed")
    assert await world.desired(workspace_id) == "ARCHIVED"
    await page.click("button:has-text('Restore')")
    await _shows(page, "following")
    assert await world.desired(workspace_id) == "RUNNING"


async def test_recovering(world: World, alice: Person, ws: Workspace, page: Any) -> None:
    """The reason, what to do, and a button that does it."""
    workspace_id = await world.row(alice, ws.endpoint, phase="ERROR", error_reason="Timeout")
    await visit(page, f"{world.origin}/w/{workspace_id}/")
    await _shows(page, "error")
    assert "Timeout" in await page.inner_text("main")
    await page.click("button:has-text('Recover')")
    await _shows(page, "following")
    await world.update(workspace_id, phase="RUNNING")
    await _opened(page, f"{world.origin}/w/{workspace_id}/")


async def test_recovering_wakes_nothing(world: World, alice: Person, page: Any) -> None:
    """One that is wanted asleep: the page leads away from its address, which would wake it."""
    workspace_id = await world.row(alice, phase="ERROR", error_reason="Timeout", desired_state="STANDBY")
    await visit(page, f"{world.origin}/w/{workspace_id}/")
    await page.click("button:has-text('Recover')")
    await page.wait_for_url(f"**/#/workspaces/{workspace_id}")
    await world.update(workspace_id, phase="STANDBY")
    assert await world.desired(workspace_id) == "STANDBY"


@pytest.mark.parametrize("reason", ["DataLost", "ContainerWithoutVolume"])
async def test_a_loss_is_accepted_on_the_dashboard(world: World, alice: Person, page: Any, reason: str) -> None:
    """Where it is said what is given up, and asked."""
    workspace_id = await world.row(alice, phase="ERROR", error_reason=reason, desired_state="STANDBY")
    await visit(page, f"{world.origin}/w/{workspace_id}/")
    await _shows(page, "error")
    assert reason in await page.inner_text("main")
    assert await page.locator("button:has-text('Recover')").count() == 0
    await page.click("a:has-text('Recover')")
    await page.wait_for_url(f"**/#/workspaces/{workspace_id}")


async def test_an_operation_that_ends_asleep(world: World, alice: Person, page: Any) -> None:
    """Followed to its end, it is then woken: the person is still looking."""
    workspace_id = await world.row(alice, "127.0.0.1:1", phase="RUNNING", desired_state="STANDBY")
    await world.busy(workspace_id, "STOPPING")
    await visit(page, f"{world.origin}/w/{workspace_id}/")
    await page.wait_for_selector(".badge:has-text('Stopping')")
    await world.update(workspace_id, phase="STANDBY", operation="NONE", op_id=None, op_started_at=None)
    await comes(lambda: WorkspaceId(workspace_id) in world.wakes.woken, PATIENCE / 1000)
    await page.wait_for_selector(".badge:has-text('About to begin')")
    assert await world.desired(workspace_id) == "RUNNING"


async def test_a_dead_one_comes_back(world: World, alice: Person, ws: Workspace, page: Any) -> None:
    """The page tries on its own, which counts as nobody's activity, and opens it."""
    workspace_id = await world.row(alice, "127.0.0.1:1")
    await visit(page, f"{world.origin}/w/{workspace_id}/")
    await _shows(page, "unreachable")
    async with page.expect_response(lambda answer: answer.status == 502):
        """It tries again."""
    assert WorkspaceId(workspace_id) not in world.proxy.activity.seen
    await world.update(workspace_id, endpoint=ws.endpoint)
    await _opened(page, f"{world.origin}/w/{workspace_id}/")


async def test_making_room(urls: tuple[str, str], ws: Workspace, browser: Browser) -> None:
    """Over the limit: one is stopped from the page, and the one that was asked for is woken in its place."""
    async with serving(*urls, limits=Limits(max_running_per_user=1)) as world:
        alice = await world.person("carol")
        running = await world.row(alice, ws.endpoint, name="the other")
        asleep = await world.row(alice, ws.endpoint, phase="STANDBY", desired_state="STANDBY")
        async for page in _tab(browser, world.origin, alice):
            await visit(page, f"{world.origin}/w/{asleep}/")
            await _shows(page, "limit")
            await page.click("li:has-text('the other') button")
            await page.wait_for_selector("button:has-text('Stopping')")

            async def stopped() -> bool:
                return await world.desired(running) == "STANDBY"

            await until(stopped)
            assert await world.desired(asleep) == "STANDBY"
            await world.update(running, phase="STANDBY")
            await _shows(page, "following")
            assert await world.desired(asleep) == "RUNNING"


async def test_a_workspaces_page_gets_no_cookie_of_ours(world: World, alice: Person, ws: Workspace, page: Any) -> None:
    """Its scripts can't read it, its requests reach it without it, and its cookies come back to it alone."""
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nSet-Cookie: own=1; Path=/\r\nSet-Cookie: session=evil\r\n"
    ws.answer = answer + b"Content-Length: 2\r\n\r\nok"
    path = f"/w/{await world.row(alice, ws.endpoint)}/"
    await visit(page, world.origin + path)
    assert await page.evaluate("document.cookie") == "own=1"
    await page.evaluate("fetch('asset').then(answer => answer.text())")
    assert b"Cookie: own=1\r\n" in ws.received
    assert alice.secret.encode() not in ws.received
    assert await page.evaluate(f"fetch('/api/v1/workspaces/{path.split('/')[2]}').then(answer => answer.status)") == 200
    cookies = {cookie["name"]: cookie for cookie in await page.context.cookies()}
    assert cookies["own"]["path"] == path
    assert re.fullmatch(re.escape(alice.secret), cookies["session"]["value"])


async def test_on_a_host_of_its_own(urls: tuple[str, str], ws: Workspace, browser: Browser) -> None:
    """A real browser takes the way over the ticket by itself, keeps the cookies apart, and wakes what sleeps."""
    ws.answer = _page_of(IDE)
    async with serving(*urls, host_pattern="{id}.ws.localhost") as world:
        alice = await world.person("dave")
        hub = f"http://hub.localhost:{world.port}"
        asleep = await world.row(alice, ws.endpoint, phase="STANDBY", desired_state="STANDBY")
        host = f"http://{asleep}.ws.localhost:{world.port}"
        async for page in _tab(browser, hub, alice):
            await visit(page, f"{host}/a?b=c")
            await _shows(page, "following")
            assert page.url == f"{hub}/w/{asleep}/a?b=c"
            await world.update(asleep, phase="RUNNING")
            await _opened(page, f"{host}/a?b=c")
            cookies = {cookie["name"]: cookie["domain"] for cookie in await page.context.cookies()}
            assert cookies == {"session": "hub.localhost", "codehub-workspace": f"{asleep}.ws.localhost"}
            assert await page.evaluate("document.cookie") == ""
            stolen = f"fetch('{hub}/api/v1/workspaces', {{credentials: 'include'}}).then(() => 'read', () => 'refused')"
            assert await page.evaluate(stolen) == "refused"
            assert b"ookie:" not in ws.received
