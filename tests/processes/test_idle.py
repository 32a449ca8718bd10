"""An idle workspace goes to sleep, one in use does not: proxy, Redis, Schedule and workflow together (SPEC 7, 8)."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import aiohttp
import pytest
from yarl import URL

from domain.model import Phase, WorkspaceId
from tests.adapters.docker_world import docker_world
from tests.conftest import OwnServices
from tests.processes.conftest import Deploy
from tests.processes.deployment import AT_REST, Deployment
from tests.processes.person import WORKSPACES, Person

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

TTL = 15
"""Long enough for who is active to be heard of, also on a machine that has a lot to do."""
PAUSE = 0.3
# Says something again and again to whoever asks, and hears nothing more.
SAYS = r"""
while read -r line && [ ${#line} -gt 1 ]; do :; done
printf 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n'
while printf '\201\002hi'; do sleep 0.3; done
"""
SERVES = "trap 'exit 0' TERM; nc -ll -p 8080 -e /bin/sh -c \"$0\" & wait"


@pytest.fixture
async def talking_image(docker_host: str, test_image: str, installation: str) -> AsyncIterator[str]:
    async with docker_world(docker_host, test_image, installation) as world:
        yield world.image_running("/bin/sh", "-c", SERVES, SAYS)


async def test_idle_goes_to_sleep_and_used_does_not(deploy: Deploy, talking_image: str) -> None:
    """HTTP requests to one, output of another's WebSocket; the third shows that time was up."""
    deployment = await deploy(ACTIVITY_FLUSH_INTERVAL=str(PAUSE), TTL_INTERVAL="1")
    await deployment.worker()
    async with deployment.person() as person:
        asked, talking = await person.create("asked"), await person.create("talking", image=talking_image)
        for workspace in (asked, talking):
            await deployment.until_phase(workspace, Phase.RUNNING)
        async with _asking(person, asked), _listening(person, talking) as heard:
            # The last to be RUNNING: when its time is up, so is theirs.
            idle = await person.create("idle")
            await deployment.until_phase(idle, Phase.RUNNING)
            for workspace in (asked, talking, idle):
                body = {"standby_ttl_seconds": TTL}
                assert (await person.ask("PATCH", f"{WORKSPACES}/{workspace}", body))[0] == 200
            await deployment.until_phase(idle, Phase.STANDBY)
            assert await _phases(deployment, asked, talking) == [Phase.RUNNING, Phase.RUNNING]
            assert heard


@pytest.mark.full
async def test_a_minute_without_redis(deploy: Deploy, own_services: OwnServices) -> None:
    """PROMISE 25, as long as it says: several TTLs pass meanwhile, and nobody is put to sleep. When it is back, who is
    in use stays up, who is not goes to sleep, and a screen that was open all the time shows it."""
    stack = await own_services("valkey")
    deployment = await deploy(REDIS_URL=stack.env["REDIS_URL"], ACTIVITY_FLUSH_INTERVAL=str(PAUSE), TTL_INTERVAL="1")
    await deployment.worker()
    async with deployment.person() as person:
        used, idle = await person.create("used"), await person.create("idle")
        for workspace in (used, idle):
            await deployment.until_phase(workspace, Phase.RUNNING)
        timeout = aiohttp.ClientTimeout(AT_REST)
        async with _asking(person, used), person.client.get(f"{person.url}/api/v1/events", timeout=timeout) as screen:
            await stack.supervisor.pause("valkey")
            for workspace in (used, idle):
                await person.ask("PATCH", f"{WORKSPACES}/{workspace}", {"standby_ttl_seconds": TTL})
            back = time.monotonic() + 60
            while time.monotonic() < back:
                assert await _phases(deployment, used, idle) == [Phase.RUNNING, Phase.RUNNING]
                await asyncio.sleep(PAUSE)
            await stack.supervisor.resume("valkey")
            async for line in screen.content:
                if b'"phase":"STANDBY"' in line.replace(b" ", b""):
                    break
            assert await _phases(deployment, used, idle) == [Phase.RUNNING, Phase.STANDBY]


async def _phases(deployment: Deployment, *workspaces: WorkspaceId) -> list[Phase]:
    return [(await deployment.row(workspace)).phase for workspace in workspaces]


@asynccontextmanager
async def _asking(person: Person, workspace: WorkspaceId) -> AsyncIterator[None]:
    async def ask() -> None:
        while True:
            async with person.client.get(f"{person.url}/w/{workspace}/cgi-bin/env") as answer:
                await answer.read()
            await asyncio.sleep(PAUSE)

    async with _beside(asyncio.create_task(ask())):
        yield


@asynccontextmanager
async def _listening(person: Person, workspace: WorkspaceId) -> AsyncIterator[list[bytes]]:
    """To a WebSocket, without ever saying anything."""
    url = urlsplit(person.url)
    cookies = person.client.cookie_jar.filter_cookies(URL(person.url))
    cookie = "; ".join(f"{one.key}={one.value}" for one in cookies.values())
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    writer.write(
        f"GET /w/{workspace}/ HTTP/1.1\r\nHost: {url.netloc}\r\nOrigin: {person.url}\r\nCookie: {cookie}\r\n"
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
    )
    assert b" 101 " in (await reader.readuntil(b"\r\n\r\n")).splitlines()[0]
    assert await reader.readexactly(4) == b"\x81\x02hi"
    heard: list[bytes] = []

    async def listen() -> None:
        while piece := await reader.read(65536):
            heard.append(piece)

    async with _beside(asyncio.create_task(listen())):
        yield heard
    writer.close()


@asynccontextmanager
async def _beside(task: "asyncio.Task[None]") -> AsyncIterator[None]:
    try:
        yield
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
