"""An idle workspace goes to sleep, one in use does not: proxy, Redis, Schedule and workflow together (SPEC 7, 8)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
from yarl import URL

from domain.model import Phase, WorkspaceId
from tests.adapters.docker_world import docker_world
from tests.processes.conftest import Deploy
from tests.processes.deployment import Deployment
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
