"""Two API processes and two workers of two nodes behave as one: whatever is asked of one holds at the other."""

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from temporalio.client import Client

from domain.model import Phase, WorkspaceId
from tests.events.stream import Stream
from tests.nodes.fleet import Fleet, fleet
from tests.ports import free_port
from tests.processes.deployment import PASSWORD
from tests.processes.process import CodehubProcess

WORKSPACES = "/api/v1/workspaces"


@dataclass
class Two:
    client: aiohttp.ClientSession
    """Of a person who logged in at the first one, and uses both."""
    urls: Sequence[str]
    nodes: Fleet

    async def ask(self, api: int, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.client.request(method, self.urls[api] + path, json=body, headers=named) as answer:
            return answer.status, await answer.json()

    async def create(self, api: int, name: str, desired: str = "STANDBY") -> str:
        status, body = await self.ask(api, "POST", WORKSPACES, {"name": name, "desired_state": desired})
        assert status == 201, body
        return str(body["id"])


@pytest.fixture
async def two(temporal_client: Client, database_url: str, redis_url: str, tmp_path: Path) -> AsyncIterator[Two]:
    env = {
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "TEMPORAL_ADDRESS": temporal_client.service_client.config.target_host,
        "TEMPORAL_NAMESPACE": temporal_client.namespace,
        "CODEHUB_ADMIN_PASSWORD": PASSWORD,
        "LIMITS_MAX_RUNNING_PER_USER": "1",
    }
    async with AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(fleet(temporal_client, database_url, redis_url))
        for node in ("local", "b"):
            await stack.enter_async_context(nodes.worker(node))
        ports = [free_port() for _ in range(2)]
        for port in ports:
            api = CodehubProcess("api", {**env, "CODEHUB_PORT": str(port)}, tmp_path / f"api-{port}.log")
            stack.callback(api.kill)
            await api.said("api_listening")
        jar = aiohttp.CookieJar(unsafe=True)
        client = await stack.enter_async_context(aiohttp.ClientSession(cookie_jar=jar))
        made = Two(client, [f"http://127.0.0.1:{port}" for port in ports], nodes)
        status, body = await made.ask(0, "POST", "/api/v1/login", {"username": "admin", "password": PASSWORD})
        assert status == 200, body
        yield made


async def test_fifty_starts_at_two_processes_for_the_last_place(two: Two) -> None:
    """Limits are exact over all of them (PROMISE 22): one starts, and runs; the others are told why not."""
    asleep = await asyncio.gather(*(two.create(number % 2, f"w{number}") for number in range(50)))
    got = await asyncio.gather(
        *(
            two.ask(1 - number % 2, "PATCH", f"{WORKSPACES}/{id_}", {"desired_state": "RUNNING"})
            for number, id_ in enumerate(asleep)
        )
    )
    refused = Counter(body["error"]["code"] for status, body in got if status == 429)
    others = Counter(status for status, _ in got if status != 429)
    # One whose home is still being made can't be changed: then the place is another's.
    assert (others[200], refused["limit_per_user"] + others[409]) == (1, 49)
    (winner,) = (body["id"] for status, body in got if status == 200)
    await two.nodes.until([WorkspaceId(winner)], Phase.RUNNING, 60)
    assert await two.nodes.database.fetchval("SELECT count(*) FROM workspaces WHERE phase = 'RUNNING'") == 1


async def test_what_is_changed_at_one_shows_at_the_other(two: Two) -> None:
    """A screen at the first hears of what the second was asked for, and of what came of it."""
    id_ = await two.create(1, "seen")
    await two.nodes.until([WorkspaceId(id_)], Phase.STANDBY, 60)
    timeout = aiohttp.ClientTimeout(total=None)
    async with two.client.get(f"{two.urls[0]}/api/v1/events", timeout=timeout) as answer:
        screen = Stream(answer.content)
        await screen.until(id_, phase="STANDBY", operation="NONE")
        status, _ = await two.ask(1, "PATCH", f"{WORKSPACES}/{id_}", {"desired_state": "RUNNING", "memo": "from afar"})
        assert status == 200
        await screen.until(id_, desired_state="RUNNING", memo="from afar")
        await screen.until(id_, phase="RUNNING", operation="NONE")


async def test_a_request_that_is_sent_again_elsewhere_is_the_same_request(two: Two) -> None:
    """Its answer was lost, and a load balancer chose the other process: one workspace, and the same answer. So also
    when both get it at once."""
    body = {"name": "once", "desired_state": "STANDBY"}
    first = await two.ask(0, "POST", WORKSPACES, body, Idempotency_Key="k1")
    again = await two.ask(1, "POST", WORKSPACES, body, Idempotency_Key="k1")
    assert (first[0], again) == (201, first)
    body["name"] = "at once"
    turns = itertools.islice(itertools.cycle((0, 1)), 20)
    got = await asyncio.gather(*(two.ask(api, "POST", WORKSPACES, body, Idempotency_Key="k2") for api in turns))
    assert len({json.dumps(answer, sort_keys=True) for answer in got}) == 1
    assert (await two.ask(1, "GET", WORKSPACES))[1]["total"] == 2
