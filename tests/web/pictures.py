"""The pictures of README and docs, taken of the real thing: `python -m tests.web.pictures [NAME…]`.

It starts a `codehub up` of its own (everything embedded, the real IDE), has three people work with it, and looks at it
with a headless Chromium. Takes some minutes and 5 GB below the temporary directory, which are given back.
"""

import asyncio
import os
import re
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import docker
from playwright.async_api import Browser, Page, expect

from starter.commands.running_stack import fill
from starter.embedded.dockerd import unmount_below
from tests.browser import NAMES, launched
from tests.debian import installed
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
PASSWORD = "picture this"
READY_SECONDS = 1200
"""The image of the IDE may have to be built first."""
ARRIVAL_SECONDS = 600
PATIENCE = 120_000
"""Milliseconds: the machine may be busy."""
DESKTOP = {"width": 1200, "height": 760}
PHONE = {"width": 390, "height": 844}
LARGE_MB = 1200
"""So much is still on its way to the store when the pictures of it are taken."""


@dataclass(frozen=True)
class Person:
    http: aiohttp.ClientSession
    url: str
    name: str

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Content-Type": "application/json"}
        async with self.http.request(method, f"/api/v1{path}", json=body, headers=headers) as answer:
            assert answer.status < 300, (method, path, await answer.text())
            return None if answer.status == 204 else await answer.json()

    async def create(self, name: str, description: str, desired: str, **more: Any) -> str:
        """Its id, once it is where it is wanted."""
        body = {"name": name, "description": description, "desired_state": desired, **more}
        return await self.arrived((await self.call("POST", "/workspaces", body))["id"], desired)

    async def want(self, workspace: str, desired: str) -> str:
        await self.call("PATCH", f"/workspaces/{workspace}", {"desired_state": desired})
        return await self.arrived(workspace, desired)

    async def arrived(self, workspace: str, phase: str) -> str:
        async with asyncio.timeout(ARRIVAL_SECONDS):
            while True:
                found = await self.call("GET", f"/workspaces/{workspace}")
                if found["phase"] == phase and found["operation"] == "NONE":
                    return workspace
                await asyncio.sleep(0.2)

    async def page(self, browser: Browser, at: str, **options: Any) -> Page:
        """Where this person is logged in already."""
        context = await browser.new_context(**{"viewport": DESKTOP, "device_scale_factor": 2, **options})
        await context.add_cookies(
            [
                {"name": found.key, "value": found.value, "url": self.url, "httpOnly": True}
                for found in self.http.cookie_jar
            ]
        )
        page = await context.new_page()
        page.set_default_timeout(PATIENCE)
        await page.goto(f"{self.url}/{at}" if at.startswith("#") else at)
        return page


@dataclass(frozen=True)
class Installation:
    url: str
    docker_host: str

    @asynccontextmanager
    async def person(self, name: str) -> AsyncIterator[Person]:
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(self.url, cookie_jar=jar) as http:
            person = Person(http, self.url, name)
            await person.call("POST", "/login", {"username": name, "password": PASSWORD})
            yield person

    def write(self, workspace: str, megabytes: int) -> None:
        """Files in the home of a running workspace, of bytes that don't get smaller."""
        with closing(docker.DockerClient(base_url=self.docker_host, timeout=600)) as engine:
            script = f"mkdir -p data && head -c {megabytes}000000 /dev/urandom > data/samples.bin"
            code, said = engine.containers.get(f"ws-{workspace}").exec_run(["sh", "-c", script])
            assert code == 0, said

    def lose(self, workspace: str) -> None:
        """As somebody does who clears up a host without asking."""
        with closing(docker.DockerClient(base_url=self.docker_host)) as engine:
            engine.volumes.get(f"ws-{workspace}-home").remove(force=True)


@asynccontextmanager
async def up() -> AsyncIterator[Installation]:
    with tempfile.TemporaryDirectory(prefix="codehub-pictures-") as folder:
        data, port = Path(folder), free_port()
        data.chmod(0o711)
        env = {
            **os.environ,
            "CODEHUB_DATA": folder,
            "CODEHUB_PORT": str(port),
            "CODEHUB_ADMIN_PASSWORD": PASSWORD,
            "COORDINATOR_NODE_ID": "codehub-1",
            "LIMITS_MAX_RUNNING_PER_USER": "3",
        }
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", "starter.cli", "up", cwd=ROOT, env=env)
        try:
            url = f"http://127.0.0.1:{port}"
            yield Installation(url, await _engine(data, process))
        finally:
            process.send_signal(signal.SIGINT)
            await process.wait()
            unmount_below(data)


async def _engine(data: Path, process: asyncio.subprocess.Process) -> str:
    """Where it is, which is told once everything is ready."""
    async with asyncio.timeout(READY_SECONDS):
        while True:
            assert process.returncode is None, "codehub up ended"
            if "DOCKER_HOST" in (told := fill({"CODEHUB_DATA": str(data)}).environment):
                return told["DOCKER_HOST"]
            await asyncio.sleep(0.5)


@dataclass
class Scene:
    """What there is to see: ada's workspaces, one of them large and on its way to the archive, and other people's."""

    ada: Person
    large: str

    @classmethod
    async def set(cls, installation: Installation, stack: AsyncExitStack) -> "Scene":
        admin = await stack.enter_async_context(installation.person("admin"))
        people = []
        for name in ("ada", "grace", "linus"):
            body = {"username": name, "password": PASSWORD, "is_admin": name == "ada"}
            await admin.call("POST", "/users", body)
            people.append(await stack.enter_async_context(installation.person(name)))
        ada, grace, linus = people
        await grace.create("compiler", "A-0, and what comes after it", "RUNNING")
        await grace.create("flow-matic", "Business data", "ARCHIVED")
        await linus.create("scheduler", "Fair, and by the clock", "STANDBY")
        await ada.create("old-thesis", "LaTeX, figures and the raw measurements", "ARCHIVED")
        await ada.create("mobile-app", "React Native client", "STANDBY")
        await ada.create("billing-service", "Invoices, on the new ledger", "RUNNING", standby_ttl_seconds=7200)
        lost = await ada.create("legacy-import", "One-off import of the 2019 orders", "STANDBY")
        await asyncio.to_thread(installation.lose, lost)
        await ada.arrived(lost, "ERROR")
        large = await ada.create("ml-notebook", "Churn model, weekly retraining", "RUNNING")
        memo = "Samples of this quarter are in data/.\nRetrain every Monday; the last good run is in runs/best."
        await ada.call("PATCH", f"/workspaces/{large}", {"memo": memo})
        await asyncio.to_thread(installation.write, large, LARGE_MB)
        return cls(ada, large)

    async def archived_and_back(self) -> None:
        """For its log, and its history."""
        await self.ada.want(self.large, "ARCHIVED")
        await self.ada.want(self.large, "RUNNING")


class Album:
    """Keeps those pictures that were asked for; all without a name."""

    def __init__(self, names: list[str]) -> None:
        self._names = names

    async def take(self, page: Page, name: str, **options: Any) -> None:
        if self._names and name not in self._names:
            return
        path = IMAGES / f"{name}.png"
        await page.screenshot(path=path, animations="disabled", **options)
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1000} kB")  # noqa: T201


async def admin_views(scene: Scene, browser: Browser, album: Album) -> None:
    # The whole page is taken, however long it is; this is how short it may be.
    page = await scene.ada.page(browser, "#/admin", viewport={"width": 1200, "height": 420})
    await expect(page.get_by_role("list", name="Health")).to_contain_text("Docker on")
    await expect(page.get_by_role("list", name="Health").get_by_text("Down")).to_have_count(0)
    await album.take(page, "admin", full_page=True)
    for section, seen in (("Workspaces", "flow-matic"), ("Users", "linus"), ("Nodes", "running")):
        await page.get_by_role("navigation", name="Admin").get_by_role("link", name=section).click()
        await expect(page.get_by_role("main").get_by_text(seen).first).to_be_visible()
        await album.take(page, f"admin-{section.lower()}", full_page=True)


async def under_way(scene: Scene, browser: Browser, album: Album) -> None:
    """While the large home is on its way to the archive: every page is open, and looked at in the same moment."""
    one = f"#/workspaces/{scene.large}"
    pages = {
        "dashboard": await scene.ada.page(browser, "#/"),
        "dashboard-dark": await scene.ada.page(browser, "#/", color_scheme="dark"),
        "workspace": await scene.ada.page(browser, one, color_scheme="dark"),
        "phone": await scene.ada.page(browser, "#/", viewport=PHONE),
        "phone-workspace": await scene.ada.page(browser, one, viewport=PHONE, color_scheme="dark"),
    }
    for page in pages.values():
        await expect(page.get_by_text("ml-notebook").first).to_be_visible()
        await expect(page.locator(".live")).to_have_attribute("data-live", "live")
    await scene.ada.call("PATCH", f"/workspaces/{scene.large}", {"desired_state": "ARCHIVED"})
    for name, page in pages.items():
        await expect(page.get_by_text(re.compile(r"^[1-9]\d % .* left")).first).to_be_visible()
        await album.take(page, name, full_page=name == "workspace")


async def history(scene: Scene, browser: Browser, album: Album) -> None:
    page = await scene.ada.page(browser, f"#/workspaces/{scene.large}")
    link = await page.get_by_role("link", name="Temporal history").get_attribute("href")
    assert link
    page = await scene.ada.page(browser, link, viewport={"width": 1500, "height": 1120}, device_scale_factor=1)
    await expect(page.get_by_text("ml-notebook of ada").first).to_be_visible()
    await album.take(page, "temporal")


async def main(names: list[str]) -> None:
    expect.set_options(timeout=PATIENCE)
    chromium = installed("chromium", *NAMES)
    assert chromium, "needs Chromium: apt-get install chromium"
    album = Album(names)
    async with AsyncExitStack() as stack:
        installation = await stack.enter_async_context(up())
        browser = await stack.enter_async_context(launched(chromium))
        scene = await Scene.set(installation, stack)
        await scene.archived_and_back()
        await admin_views(scene, browser, album)
        await under_way(scene, browser, album)
        await scene.ada.arrived(scene.large, "ARCHIVED")
        await history(scene, browser, album)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
