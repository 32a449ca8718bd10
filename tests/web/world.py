"""The dashboard as people meet it: the real API process's server on loopback, a worker with the coordinator, real
PostgreSQL, Redis, S3 and Temporal, and a real Chromium. Only the engine is in memory, which makes it quick.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import aiohttp
from argon2 import PasswordHasher
from playwright.async_api import Browser, BrowserContext, Locator, Page, expect
from pydantic import SecretStr
from redis.asyncio import Redis
from temporalio.client import Client

from activities.attempt import Actuator, Attempt
from adapters.memory import MemoryHomes, MemoryRuntime
from adapters.postgres.accounts import Accounts
from adapters.postgres.sessions import Sessions
from adapters.redis.events import EventBus
from adapters.runtime import Runtime
from adapters.s3.client import S3Config
from adapters.s3.store import open_store
from domain.model import Operation, WorkspaceId
from settings import Settings
from starter.api.logins import hash_secret, new_secret
from starter.api.server import serve
from tests.browser import visit
from tests.conftest import S3
from tests.integration.system import System, system
from tests.ports import free_port
from tests.resources import resources

PASSWORD = "correct horse battery"
PATIENCE = 60_000
"""Milliseconds: the machine may be busy."""
HISTORIES = "http://temporal.invalid"
_NUMBERS = itertools.count(1)
_HASH = PasswordHasher().hash(PASSWORD)


@dataclass
class Starts:
    """Starting waits at the gate when that is closed, so that what is under way can be looked at."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    def actuators(self, runtime: Runtime) -> Mapping[Operation, Actuator]:
        start = resources(runtime).by_operation()[Operation.STARTING]

        async def starting(attempt: Attempt) -> None:
            await self.gate.wait()
            await start(attempt)

        return {Operation.STARTING: starting}


@dataclass
class Tab:
    """A browser of one person, with whatever went wrong in it."""

    page: Page
    wrong: list[str]

    def row(self, name: str) -> Locator:
        return self.page.get_by_role("listitem").filter(has=self.page.get_by_role("link", name=name, exact=True))

    async def log_in(self, username: str, password: str = PASSWORD) -> None:
        await self.page.get_by_label("Username").fill(username)
        await self.page.get_by_label("Password").fill(password)
        await self.page.get_by_role("button", name="Log in").click()

    async def create(self, name: str, *, start: bool = True) -> Locator:
        await self.page.get_by_role("button", name="New workspace").first.click()
        dialog = self.page.get_by_role("dialog")
        await dialog.get_by_label("Name").fill(name)
        await dialog.get_by_label("Start it right away").set_checked(start)
        await dialog.get_by_role("button", name="Create").click()
        # The event may be here before the answer, behind the dialog.
        await expect(dialog).to_have_count(0)
        await expect(self.row(name)).to_be_visible()
        return self.row(name)

    async def choose(self, name: str, item: str) -> None:
        """From the row's menu, which offers what can be done when it is opened: not while an answer is on its way."""
        await expect(self.page.locator("button[aria-busy=true]")).to_have_count(0)
        await self.page.get_by_role("button", name=f"More for {name}").click()
        await self.page.get_by_role("menuitem", name=item).click()

    async def shows(self, name: str, state: str) -> None:
        await expect(self.row(name).locator(".pill")).to_have_text(state)


@dataclass
class World:
    settings: Settings
    system: System
    runtime: MemoryRuntime
    starts: Starts
    bus: EventBus
    browser: Browser
    _serving: asyncio.Task[None] | None = None
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def accounts(self) -> Accounts:
        return Accounts(self.system.parts.database)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.settings.codehub_port}"

    async def start_api(self) -> None:
        self._stop = asyncio.Event()
        self._serving = asyncio.create_task(serve(self.settings, self._stop))
        async with asyncio.timeout(60), aiohttp.ClientSession() as session:
            while True:
                assert not self._serving.done(), self._serving.result()
                with suppress(aiohttp.ClientError):
                    async with session.get(f"{self.url}/health/ready") as answer:
                        if answer.status == 200:
                            return
                await asyncio.sleep(0.05)

    async def stop_api(self) -> None:
        if self._serving is not None:
            self._stop.set()
            await self._serving

    async def person(self, *, is_admin: bool = False) -> str:
        """A new user's name. Their password is PASSWORD."""
        username = f"user{next(_NUMBERS)}"
        await self.accounts.create(username, _HASH, is_admin=is_admin)
        return username

    async def session(self, username: str) -> str:
        """The cookie of somebody who has logged in: doing that by hand each time would take most of the time."""
        credentials = await self.accounts.credentials(username)
        assert credentials
        secret = new_secret()
        opened = await Sessions(self.accounts.database).open(credentials, hash_secret(secret), timedelta(hours=1))
        assert opened
        return secret

    async def call(self, method: str, path: str, username: str, body: Any = None) -> Any:
        """What another program of this user does."""
        cookies = {"session": await self.session(username)}
        async with (
            aiohttp.ClientSession(self.url, cookies=cookies, cookie_jar=aiohttp.CookieJar(unsafe=True)) as session,
            session.request(method, path, json=body, headers={"Content-Type": "application/json"}) as answer,
        ):
            assert answer.status < 300, await answer.text()
            return None if answer.status == 204 else await answer.json()

    @asynccontextmanager
    async def tab(self, username: str | None = None, at: str = "", **options: Any) -> AsyncIterator[Tab]:
        """A browser of its own, where somebody is logged in. Whatever goes wrong in it, or is refused by its policy,
        fails the test.
        """
        context: BrowserContext = await self.browser.new_context(**options)
        try:
            page = await context.new_page()
            page.set_default_timeout(PATIENCE)
            wrong: list[str] = []
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.on("console", lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None)
            page.on("request", lambda asked: wrong.append(asked.url) if not asked.url.startswith(self.url) else None)
            if username:
                await context.add_cookies(
                    [{"name": "session", "value": await self.session(username), "url": self.url, "httpOnly": True}]
                )
            await visit(page, f"{self.url}/{at}")
            if username:
                # Before that, it listens to nobody.
                await expect(page.get_by_role("navigation", name="Main")).to_be_visible()
            yield Tab(page, wrong)
            assert wrong == []
        finally:
            await context.close()

    async def workspace(self, name: str) -> WorkspaceId:
        found = await self.system.parts.database.fetchval(
            "SELECT id FROM workspaces WHERE name = $1 AND phase <> 'DELETED'", name
        )
        return WorkspaceId(str(found))

    async def begun(self, name: str) -> None:
        """Somebody has taken up its operation."""
        workspace = await self.workspace(name)
        async with asyncio.timeout(60):
            while not await self.system.parts.database.fetchval(
                "SELECT attempts FROM operations WHERE workspace_id = $1 AND outcome IS NULL", workspace
            ):
                await asyncio.sleep(0.05)


@asynccontextmanager
async def opened(
    *, database_url: str, redis_url: str, client: Client, temporal_address: str, s3: S3, browser: Browser
) -> AsyncIterator[World]:
    expect.set_options(timeout=PATIENCE)
    settings = Settings(
        database_url=database_url,
        redis_url=redis_url,
        temporal_address=temporal_address,
        temporal_namespace=client.namespace,
        temporal_ui_url=HISTORIES,
        codehub_port=free_port(),
        codehub_admin_password=SecretStr(PASSWORD),
        s3_endpoint=s3.endpoint,
        s3_access_key=s3.access_key,
        s3_secret_key=SecretStr(s3.secret_key),
        s3_bucket=s3.bucket,
        limits_max_running_per_user=3,
        coordinator_idle_interval=1,
        coordinator_retry_interval=0.2,
        reconciler_retry_backoff=0.05,
        workspace_image="ide:latest",
    )
    runtime = MemoryRuntime()
    starts = Starts()
    config = S3Config(s3.endpoint, s3.access_key, s3.bucket, s3.secret_key)
    async with AsyncExitStack() as stack:
        archives = await stack.enter_async_context(open_store(config))
        running = await stack.enter_async_context(
            system(
                client,
                database_url,
                runtime,
                "ide:latest",
                actuators=starts.actuators,
                archives=archives,
                homes=MemoryHomes(runtime),
                settings=settings,
                redis_url=redis_url,
            )
        )
        redis: Redis = Redis.from_url(redis_url)
        stack.push_async_callback(redis.aclose)
        made = World(settings, running, runtime, starts, EventBus(redis), browser)
        await made.start_api()
        stack.push_async_callback(made.stop_api)
        yield made
