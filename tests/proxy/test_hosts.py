"""`WORKSPACE_HOST_PATTERN`: a host for each workspace, entered by a ticket, and nothing of the hub's reaches it."""

import asyncio
import time
from collections.abc import AsyncIterator
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import pytest
import pytest_asyncio
import websockets
from websockets.exceptions import InvalidStatus

from domain.hosts import Hosts, Nobody, check_host_pattern
from domain.model import WorkspaceId
from settings import SettingsError, load_settings
from starter.proxy import tickets
from starter.proxy.tickets import new_ticket
from tests.proxy.test_websocket import echo
from tests.proxy.world import Person, Workspace, World, serving
from tests.raw_http import Browser, request

PATTERN = "{id}.ws.localhost"
ONE = WorkspaceId("0b8f6f0e-6a7b-4c7e-9d3a-2f1e5c4b3a21")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(urls: tuple[str, str]) -> AsyncIterator[World]:
    async with serving(*urls, host_pattern=PATTERN) as world:
        yield world


@pytest_asyncio.fixture(loop_scope="module")
async def running(world: World, alice: Person, ws: Workspace) -> str:
    return await world.row(alice, ws.endpoint)


@pytest.fixture
def browser(world: World, alice: Person) -> Browser:
    return Browser(world, {_hub(world): {"session": alice.secret}})


async def test_from_the_hub_into_the_workspace(world: World, running: str, ws: Workspace, browser: Browser) -> None:
    """One ticket on the way; then a cookie of that host alone. The workspace sees neither, nor the session."""
    start = f"http://{_hub(world)}/w/{running}/a/b?c=d"
    url, answer, way = await browser.open(start)
    assert (url, answer.status, answer.body) == (f"http://{_host(world, running)}/a/b?c=d", 200, b"ok")
    assert len(way) == 5
    assert set(browser.jars) == {_hub(world), _host(world, running)}
    assert set(browser.jars[_host(world, running)]) == {"codehub-workspace"}
    assert ws.requests == 1
    assert ws.received.startswith(b"GET /a/b?c=d HTTP/1.1\r\n")
    assert ws.header("cookie") == []
    assert ws.header("host") == [_host(world, running)]
    assert ws.header("x-forwarded-prefix") == []
    again = await browser.open(url)
    assert (again[0], len(again[2]), again[1].body) == (url, 1, b"ok")


async def test_straight_to_the_host(world: World, running: str, browser: Browser) -> None:
    """A bookmark works: to the hub and back by itself."""
    url, answer, _ = await browser.open(f"http://{_host(world, running)}/x?y=%26z")
    assert (url, answer.body) == (f"http://{_host(world, running)}/x?y=%26z", b"ok")


async def test_whoever_is_not_logged_in(world: World, running: str, ws: Workspace) -> None:
    """Is sent to log in, and from there back to the ticket; nothing reaches the workspace."""
    stranger = Browser(world, {})
    url, _, way = await stranger.open(f"http://{_host(world, running)}/x")
    assert urlsplit(url).netloc == _hub(world)
    assert urlsplit(url).path == "/"
    assert parse_qs(urlsplit(url).query)["next"][0].startswith(f"/w/{running}/.codehub/enter?state=")
    assert len(way) == 3
    assert ws.connections == []


async def test_the_cookie_of_a_host(world: World, running: str, ws: Workspace, alice: Person, browser: Browser) -> None:
    """Opens that workspace only: no other one, not the API, not the hub. Nor does the hub's session open a host."""
    await browser.open(f"http://{_host(world, running)}/")
    entered = browser.jars[_host(world, running)]["codehub-workspace"]
    other = await world.row(alice, ws.endpoint)
    before = ws.requests
    cookie = f"codehub-workspace={entered}; session={entered}"
    assert (await world.get("/", None, Host=_host(world, other), Cookie=cookie)).status == 401
    assert (await world.get("/", None, Host=_host(world, running), Cookie=alice.cookie)).status == 401
    for name in (entered, entered.partition(".")[2]):
        stolen = f"session={name}; __Host-session={name}; codehub-workspace={name}"
        assert (await world.get("/api/v1/session", None, Host=_hub(world), Cookie=stolen)).status == 401
        bearer = {"Authorization": f"Bearer {name}"}
        assert (await world.get("/api/v1/session", None, Host=_hub(world), **bearer)).status == 401
    assert (await world.get(f"/w/{running}/", None, Host=_hub(world), Cookie=cookie)).status == 401
    assert ws.requests == before


async def test_nothing_of_the_hub_on_a_host(world: World, running: str, ws: Workspace, browser: Browser) -> None:
    """Every path of it is the workspace's: the API, the dashboard and the health of codehub are not there."""
    await browser.open(f"http://{_host(world, running)}/")
    for path in ("/api/v1/session", "/health/live", "/metrics", "/assets/main.js", f"/w/{running}/", "/.codehubx"):
        assert (await browser.get(f"http://{_host(world, running)}{path}")).body == b"ok"
        assert ws.has(f"GET {path} HTTP/1.1".encode())
    before = ws.requests
    for path in ("/.codehub/", "/.codehub/enter", "/.codehub/x?y"):
        assert (await browser.get(f"http://{_host(world, running)}{path}")).status == 404
    for host in ("x.ws.localhost", ".ws.localhost", f"{running.upper()}x.ws.localhost"):
        assert (await world.get("/api/v1/session", None, Host=host)).status == 404
    assert ws.requests == before


async def test_a_target_that_names_another_host(world: World, running: str, ws: Workspace, alice: Person) -> None:
    """The Host is what counts, whatever address the request line holds: nobody gets from a workspace's host to the API,
    or from anywhere to a workspace, by naming the other one."""
    hub, host = _hub(world), _host(world, running)
    cookie = ("Cookie", f"{alice.cookie}; codehub-workspace=x")
    for target in (f"http://{hub}/api/v1/session", f"http://{hub}/", f"http://{hub}/w/{running}/", "*", f"{hub}:80"):
        answers = await world.exchange(request("GET", target, [("Host", host), cookie]))
        assert [one.status for one in answers] == [404], target
    assert world.seen == []
    for target in (f"http://{host}/", f"http://{host}/w/{running}/", f"//{host}/", f"http://{host}@{hub}/w/{running}/"):
        answers = await world.exchange(request("GET", target, [("Host", hub), cookie]))
        assert [one.status for one in answers] in ([200], [404]), target
    for hosts in ([host, hub], [hub, host], [f"{host}, {hub}"], [f"{hub}/{host}"], [f"x@{host}"], [f"{host} {hub}"]):
        lines = [*(("Host", one) for one in hosts), cookie]
        answers = await world.exchange(request("GET", f"/w/{running}/", lines))
        assert [one.status for one in answers] in ([400], [404], [401]), hosts
    assert ws.connections == []


async def test_nothing_of_a_workspace_at_the_hub(world: World, running: str, ws: Workspace, browser: Browser) -> None:
    """Its pages would be of the hub's origin: not even a file of it is passed there."""
    session = {"Cookie": f"session={browser.jars[_hub(world)]['session']}"}
    answer = await world.get(f"/w/{running}/script.js", None, Host=_hub(world), **session)
    assert answer.status == 421
    assert f"http://{_host(world, running)}/".encode() in answer.body
    assert ws.connections == []


async def test_a_ticket_is_good_once(world: World, running: str, browser: Browser) -> None:
    """And in the browser that asked for it, which is the one with the state."""
    _, _, way = await browser.open(f"http://{_hub(world)}/w/{running}/")
    ticket = next(url for url in way if "ticket=" in url)
    used = await browser.get(ticket)
    assert (used.status, used.all("set-cookie")) == (403, [])
    assert f"http://{_hub(world)}/w/{running}/".encode() in used.body
    thief = Browser(world, {_host(world, running): {"codehub-entering": "another"}})
    fresh = await browser.get(f"http://{_hub(world)}/w/{running}/.codehub/enter?state=mine&to=/")
    assert (await thief.get(str(fresh.get("location")))).status == 403
    browser.jars[_host(world, running)]["codehub-entering"] = "mine"
    assert (await browser.get(str(fresh.get("location")))).status == 303


async def test_ten_at_once_with_one_ticket(world: World, running: str, browser: Browser) -> None:
    """One gets in."""
    fresh = await browser.get(f"http://{_hub(world)}/w/{running}/.codehub/enter?state=mine&to=/")
    browser.jars[_host(world, running)] = {"codehub-entering": "mine"}
    answers = await asyncio.gather(*(browser.get(str(fresh.get("location"))) for _ in range(10)))
    assert sorted(answer.status for answer in answers) == [303] + [403] * 9


async def test_tickets_that_are_not_good(world: World, running: str, alice: Person, ws: Workspace) -> None:
    """Too old, from the future, of another workspace, of another session, cut or changed."""
    user = (await world.deps.sessions.of_user(alice.id))[0]
    other = WorkspaceId(await world.row(alice, ws.endpoint))
    now = int(time.time())

    async def entered(ticket: str) -> int:
        thief = Browser(world, {_host(world, running): {"codehub-entering": "s"}})
        return (await thief.get(f"http://{_host(world, running)}/.codehub/enter?ticket={ticket}&to=/")).status

    def made(workspace_id: str = running, state: str = "s", expires: int = now + tickets.SECONDS) -> str:
        return new_ticket(user, WorkspaceId(workspace_id), state, expires, uuid4().hex)

    good = made()
    stranger = await world.person("mallory")
    changed = [
        good[:-1] + ("A" if good[-1] != "A" else "B"),
        good[:-1],
        good + "A",
        good.replace(alice.id, stranger.id),
    ]
    bad = [made(other), made(state="x"), made(expires=now - 1), made(expires=now + 1000), *changed, "", "x.y.z"]
    assert [await entered(ticket) for ticket in bad] == [403] * len(bad)
    assert await entered(good) == 303
    kept = made()
    await world.get(
        "/api/v1/logout", None, "POST", Host=_hub(world), Cookie=alice.cookie, Content_Type="application/json"
    )
    assert await entered(kept) == 403
    assert ws.connections == []


async def test_no_open_redirect(world: World, running: str, browser: Browser) -> None:
    """Where a ticket leads to is on the workspace's host, whatever `to` says."""
    for to in ("//evil.example/", "/\\evil.example", "https://evil.example/", "/%0d%0aX:y", "@evil.example", ""):
        await browser.get(f"http://{_host(world, running)}/")
        state = browser.jars[_host(world, running)]["codehub-entering"]
        asked = f"http://{_hub(world)}/w/{running}/.codehub/enter?state={state}&to={to}"
        way = [str((await browser.get(asked)).get("location"))]
        way.append(str((await browser.get(way[0])).get("location")))
        assert all(urlsplit(url).netloc == _host(world, running) for url in way), way
        browser.jars[_host(world, running)].clear()


async def test_logout_closes_the_host(world: World, running: str, ws: Workspace, browser: Browser) -> None:
    """The session ends at the hub, and with it what it opened, WebSockets included."""
    await browser.open(f"http://{_host(world, running)}/")
    async with echo() as (endpoint, _):
        await world.update(running, endpoint=endpoint)
        cookie = {"Cookie": f"codehub-workspace={browser.jars[_host(world, running)]['codehub-workspace']}"}
        options = {"additional_headers": cookie, "proxy": None, "host": "127.0.0.1", "port": world.port}
        uri = f"ws://{_host(world, running)}/"
        with pytest.raises(InvalidStatus):
            await websockets.connect(uri, origin=f"http://{_hub(world)}", **options)  # type: ignore[arg-type]
        client = await websockets.connect(uri, origin=f"http://{_host(world, running)}", **options)  # type: ignore[arg-type]
        async with client:
            await client.send("x")
            assert await client.recv() == "x"
            session = f"session={browser.jars[_hub(world)]['session']}"
            await world.get(
                "/api/v1/logout", None, "POST", Host=_hub(world), Cookie=session, Content_Type="application/json"
            )
            await asyncio.wait_for(client.wait_closed(), 10)
    assert (await world.get("/", None, Host=_host(world, running), **cookie)).status == 401


async def test_states_are_shown_at_the_hub(world: World, alice: Person, browser: Browser, ws: Workspace) -> None:
    """Whatever needs the API: from a host that sleeps, the person lands on the hub's page, and it wakes."""
    asleep = await world.row(alice, ws.endpoint, phase="STANDBY", desired_state="STANDBY")
    archived = await world.row(alice, phase="ARCHIVED", desired_state="ARCHIVED")
    url, answer, _ = await browser.open(f"http://{_host(world, asleep)}/a")
    assert (url, answer.status) == (f"http://{_hub(world)}/w/{asleep}/a", 200)
    assert world.wakes.woken == [asleep]
    url, answer, _ = await browser.open(f"http://{_host(world, archived)}/")
    assert (url, answer.status) == (f"http://{_hub(world)}/w/{archived}/", 502)
    await world.update(asleep, phase="RUNNING")
    url, answer, _ = await browser.open(f"http://{_hub(world)}/w/{asleep}/a")
    assert (url, answer.body) == (f"http://{_host(world, asleep)}/a", b"ok")
    await world.update(asleep, phase="STANDBY", desired_state="STANDBY")
    cookie = {"Cookie": f"codehub-workspace={browser.jars[_host(world, asleep)]['codehub-workspace']}"}
    assert (await world.get("/data", None, Host=_host(world, asleep), **cookie)).status == 503
    assert (await browser.open(f"http://{_host(world, asleep)}/"))[0] == f"http://{_hub(world)}/w/{asleep}/"


async def test_a_dead_one_in_no_circle(world: World, alice: Person, browser: Browser) -> None:
    """RUNNING, but nothing answers: said on the host itself, with the way to the dashboard."""
    dead = await world.row(alice, "127.0.0.1:1")
    url, answer, _ = await browser.open(f"http://{_hub(world)}/w/{dead}/")
    assert (url, answer.status) == (f"http://{_host(world, dead)}/", 502)
    assert f'href="http://{_hub(world)}/"'.encode() in answer.body


async def test_somebody_elses(world: World, running: str, bob: Person, ws: Workspace) -> None:
    """404 at the hub, from wherever one comes; and no ticket."""
    theirs = Browser(world, {_hub(world): {"session": bob.secret}})
    for start in (f"http://{_host(world, running)}/", f"http://{_hub(world)}/w/{running}/.codehub/enter?state=s&to=/"):
        assert (await theirs.open(start))[1].status == 404
    assert ws.connections == []


async def test_cookies_of_the_workspace(world: World, running: str, ws: Workspace, browser: Browser) -> None:
    """They stay on its host, on the paths it names; ours can't be set."""
    await browser.open(f"http://{_host(world, running)}/")
    ws.answer = (
        b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1; Path=/x; Domain=ws.localhost\r\nSet-Cookie: codehub-workspace=no\r\n"
        b"Set-Cookie: __Host-codehub-entering=no\r\nLocation: /y\r\nContent-Length: 0\r\n\r\n"
    )
    answer = await browser.get(f"http://{_host(world, running)}/")
    assert answer.all("set-cookie") == ["a=1; Path=/x"]
    assert answer.get("location") == "/y"


def test_which_names() -> None:
    """Case, a port and a trailing dot don't matter; everything else does."""
    hosts = Hosts("ws-{id}.example.com", "https://hub.example.com:8443")
    assert hosts.url(ONE) == f"https://ws-{ONE}.example.com:8443"
    for host in (f"ws-{ONE}.example.com", f"WS-{ONE.upper()}.Example.com:8443", f"ws-{ONE}.example.com."):
        assert hosts.workspace(host.encode()) == ONE
    for host in (
        "hub.example.com",
        "example.com",
        f"{ONE}.example.com",
        f"ws-{ONE}.example.com.evil",
        f"x.ws-{ONE}.example.com",
    ):
        assert hosts.workspace(host.encode()) is None
    assert hosts.workspace(b"ws-other.example.com") == Nobody()


@pytest.mark.parametrize(
    "pattern", ["ws.example.com", "{id}", "{id}.{id}.com", "x.{id}.com", "*.{id}.com", "{id}.a/b", "{ID}.a"]
)
def test_patterns_that_are_none(pattern: str) -> None:
    """The start stops with a line that says what would be right."""
    with pytest.raises(ValueError, match="would be right"):
        check_host_pattern(pattern, "https://hub.example.com")
    with pytest.raises(SettingsError, match=r"^WORKSPACE_HOST_PATTERN="):
        load_settings({"WORKSPACE_HOST_PATTERN": pattern, "CODEHUB_URL": "https://hub.example.com"})


def test_a_pattern_needs_the_hubs_url() -> None:
    """Or nobody could be sent there to log in."""
    with pytest.raises(SettingsError, match="CODEHUB_URL"):
        load_settings({"WORKSPACE_HOST_PATTERN": PATTERN})
    with pytest.raises(SettingsError, match="must not be"):
        load_settings({"WORKSPACE_HOST_PATTERN": PATTERN, "CODEHUB_URL": f"http://{ONE}.ws.localhost"})


def _hub(world: World) -> str:
    return f"hub.localhost:{world.port}"


def _host(world: World, workspace_id: str) -> str:
    return f"{workspace_id}.ws.localhost:{world.port}"
