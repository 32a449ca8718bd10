"""A whole codehub of its own for a benchmark: embedded services, worker and API as processes, a tiny image."""

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import aiohttp
import docker

from bench.following import Following, following
from bench.sizes import Sizes
from domain.naming import DEFAULT_NODE
from settings import load_settings
from starter.embedded.child import Child
from starter.embedded.progress import ConsoleProgress
from starter.embedded.stack import Stack, StackConfig
from tests.embedded import image
from workflows.messages import SEARCH_ATTRIBUTES

PASSWORD = "bench-password"
MANY = "1000000"
MEMORY_WORKER = "bench.memory_worker"
# As docs/production.md advises: the ticks have work to do, and nothing expires while it is measured.
TTL = {"TTL_STANDBY_SECONDS": "10800", "TTL_ARCHIVE_SECONDS": "86400"}


@dataclass
class Installation:
    """What a person has: the API; and beside it the engine, for the floors."""

    url: str
    session: aiohttp.ClientSession
    engine: docker.DockerClient
    image: str
    env: dict[str, str]
    stack: Stack
    following: Following

    async def create(self, desired: str = "RUNNING") -> str:
        body = {"name": f"bench-{time.monotonic_ns()}", "image_ref": self.image, "desired_state": desired}
        async with self.session.post(f"{self.url}/api/v1/workspaces", json=body) as answer:
            answer.raise_for_status()
            return str((await answer.json())["id"])

    async def want(self, workspace: str, desired: str) -> None:
        path = f"{self.url}/api/v1/workspaces/{workspace}"
        async with self.session.patch(path, json={"desired_state": desired}) as answer:
            answer.raise_for_status()

    async def get(self, workspace: str) -> dict[str, Any]:
        async with self.session.get(f"{self.url}/api/v1/workspaces/{workspace}") as answer:
            answer.raise_for_status()
            return dict(await answer.json())

    async def until(self, workspace: str, phase: str) -> dict[str, Any]:
        return await self.following.until(workspace, phase)

    async def delete(self, workspace: str) -> None:
        async with self.session.delete(f"{self.url}/api/v1/workspaces/{workspace}") as answer:
            answer.raise_for_status()
        await self.following.until_gone(workspace)


@asynccontextmanager
async def installed() -> AsyncIterator[Installation]:
    """On the engine that is there, or a private one."""
    async with services() as stack, _processes(stack, "starter.cli worker") as (env, url, session):
        # It keeps connections per URL, and closes the oldest while they are in use: no floor may fail for that.
        engine = docker.DockerClient(base_url=stack.env["DOCKER_HOST"], num_pools=10_000, max_pool_size=100)
        built = await asyncio.to_thread(image.build, stack.env["DOCKER_HOST"], "bench")
        async with following(session, url) as followed:
            yield Installation(url, session, engine, built, env, stack, followed)


@dataclass
class Simulation:
    """The same with an engine in the worker's memory: what codehub itself costs, and ten thousand of it."""

    url: str
    session: aiohttp.ClientSession
    env: dict[str, str]
    stack: Stack

    async def add_node(self, name: str) -> None:
        """One more worker, on a node of its own."""
        await self.stack.add(_child(f"worker-{name}", f"{MEMORY_WORKER} {name}", self.env, self.url))


@asynccontextmanager
async def simulated(sizes: Sizes) -> AsyncIterator[Simulation]:
    worker, cached = f"{MEMORY_WORKER} {DEFAULT_NODE}", {"WORKER_MAX_CACHED_WORKFLOWS": str(sizes.cached)}
    async with services("unix:///nowhere") as stack, _processes(stack, worker, cached) as (env, url, session):
        yield Simulation(url, session, env, stack)


@asynccontextmanager
async def services(docker_host: str | None = None) -> AsyncIterator[Stack]:
    with tempfile.TemporaryDirectory(prefix="codehub-bench-") as folder:
        data = Path(folder)
        data.chmod(0o711)
        config = StackConfig(data=data, search_attributes=SEARCH_ATTRIBUTES, docker_host=docker_host)
        async with Stack(config, ConsoleProgress()) as stack:
            yield stack


@asynccontextmanager
async def _processes(
    stack: Stack, worker: str, settings: Mapping[str, str] = MappingProxyType({})
) -> AsyncIterator[tuple[dict[str, str], str, aiohttp.ClientSession]]:
    port = stack.state.port("api")
    env = {
        **stack.env,
        "CODEHUB_PORT": str(port),
        "CODEHUB_ADMIN_PASSWORD": PASSWORD,
        "LIMITS_MAX_RUNNING_PER_USER": MANY,
        "LIMITS_MAX_RUNNING_GLOBAL": MANY,
        **TTL,
        **settings,
    }
    load_settings(env)
    url = f"http://127.0.0.1:{port}"
    await stack.add(_child("worker", worker, env, url), _child("api", "starter.cli api", env, url))
    jar = aiohttp.CookieJar(unsafe=True)  # an address is no site to it
    async with aiohttp.ClientSession(headers={"Origin": url}, cookie_jar=jar) as session:
        body = {"username": "admin", "password": PASSWORD}
        async with session.post(f"{url}/api/v1/login", json=body) as answer:
            answer.raise_for_status()
        yield env, url, session


def _child(name: str, command: str, env: dict[str, str], url: str) -> Child:
    async def ready() -> None:
        if name == "api":
            async with aiohttp.ClientSession() as session, session.get(f"{url}/health/ready") as answer:
                answer.raise_for_status()

    return Child(
        name=name,
        argv=(sys.executable, "-m", *command.split()),
        env=env,
        ready=ready,
        ready_within=60,
        after=("postgres", "temporal", "valkey", "seaweed"),
    )
