"""Three Docker hosts on one machine, a worker on each, and two API processes, on the services of the run."""

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from temporalio.client import Client

from adapters.postgres.database import Database, open_database
from adapters.postgres.rows import to_workspace
from domain.model import DesiredState, Operation, Phase, Workspace, WorkspaceId
from domain.observation import ContainerState, Presence
from tests.conftest import own_bucket, own_database
from tests.namespaces import own_namespace
from tests.nodes.host import Command, Host
from tests.ports import free_port
from tests.processes.deployment import PASSWORD, QUICK
from tests.processes.person import Person
from tests.services import OWN_PREFIX, Services

APIS = 2
PATIENT = 240.0
"""How long anything may take on a machine that has a lot to do."""


@dataclass
class World:
    env: dict[str, str]
    folder: Path
    database: Database
    temporal: Client
    hosts: dict[str, Host]
    people: list[Person] = field(default_factory=list)
    """The same user, at each of the API processes."""
    commands: list[Command] = field(default_factory=list)
    created: int = 0

    async def create(self, desired: DesiredState = DesiredState.RUNNING, *, at: int | None = None) -> WorkspaceId:
        """At one API process after the other."""
        self.created += 1
        person = self.people[(self.created if at is None else at) % len(self.people)]
        return await person.create(f"w{self.created}", desired)

    async def row(self, workspace: WorkspaceId) -> Workspace:
        found = await self.database.fetchrow("SELECT * FROM workspaces WHERE id = $1", workspace)
        assert found
        return to_workspace(found)

    async def until(
        self, workspace: WorkspaceId, condition: Callable[[Workspace], bool], seconds: float = PATIENT
    ) -> Workspace:
        deadline = time.monotonic() + seconds
        while not condition(row := await self.row(workspace)):
            assert time.monotonic() < deadline, f"still {row}{self.words()}"
            await asyncio.sleep(0.05)
        return row

    async def until_phase(self, workspace: WorkspaceId, phase: Phase, seconds: float = PATIENT) -> Workspace:
        return await self.until(workspace, lambda ws: ws.phase is phase and ws.operation is Operation.NONE, seconds)

    async def until_it_runs(self, workspace: WorkspaceId, seconds: float = PATIENT) -> Workspace:
        """As its row says, and its engine: a row says RUNNING until somebody has seen that an engine has died."""
        deadline = time.monotonic() + seconds
        while True:
            row = await self.until_phase(workspace, Phase.RUNNING, seconds)
            seen = await self.hosts[row.node or ""].runtime.observe(workspace, probe=True)
            if (seen.container, seen.endpoint) == (ContainerState.READY, row.endpoint):
                return row
            assert time.monotonic() < deadline, f"still {seen}{self.words()}"
            await asyncio.sleep(0.05)

    async def on_nodes(self) -> dict[str, list[str]]:
        rows = await self.database.fetch(
            "SELECT node, array_agg(id::text) AS ids FROM workspaces"
            " WHERE node IS NOT NULL AND phase <> 'DELETED' GROUP BY node"
        )
        return {row["node"]: row["ids"] for row in rows}

    async def holders(self, workspace: WorkspaceId, *, among: set[str] | None = None) -> set[str]:
        """The engines that have a volume of it."""
        found = set()
        for name, host in self.hosts.items():
            if among is None or name in among:
                seen = await host.runtime.observe(workspace, probe=False)
                if seen.volume is Presence.PRESENT:
                    found.add(name)
        return found

    async def write(self, workspace: WorkspaceId, text: str) -> None:
        endpoint = (await self.row(workspace)).endpoint
        async with self.people[0].client.post(f"http://{endpoint}/cgi-bin/put?note", data=text) as answer:
            assert answer.status == 200

    async def read(self, workspace: WorkspaceId, person: Person | None = None) -> str:
        """Through the proxy of an API process."""
        who = person or self.people[0]
        async with who.client.get(f"{who.url}/w/{workspace}/note") as answer:
            assert answer.status == 200, (answer.status, await answer.text())
            return await answer.text()

    async def nodes(self) -> dict[str, Any]:
        status, body = await self.people[0].ask("GET", "/api/v1/nodes")
        assert status == 200, body
        return {item["name"]: item for item in body["items"]}

    async def until_state(self, node: str, state: str, seconds: float = PATIENT) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while (found := (await self.nodes())[node])["state"] != state:
            assert time.monotonic() < deadline, f"still {found}{self.words()}"
            await asyncio.sleep(0.2)
        return dict(found)

    async def codehub(self, *arguments: str) -> tuple[int, str]:
        """The command line, as the admin."""
        command = Command(list(arguments), self.env, self.folder / f"command-{len(self.commands)}.log")
        self.commands.append(command)
        code = await command.ended(PATIENT)
        return code, command.output

    async def clear(self) -> None:
        """Delete every workspace, and wait until nothing of it is left."""
        rows = await self.database.fetch("SELECT id FROM workspaces WHERE phase <> 'DELETED'")
        ids = [WorkspaceId(str(row["id"])) for row in rows]
        for workspace in ids:
            await self.until(workspace, lambda ws: ws.operation is Operation.NONE)
            await self.people[0].delete(workspace)
        for workspace in ids:
            await self.until_phase(workspace, Phase.DELETED)

    def words(self) -> str:
        workers = [host.worker for host in self.hosts.values() if host.worker]
        return "".join(f"\n--- {one.log.name}\n{one.output[-2500:]}" for one in [*workers, *self.commands])


@asynccontextmanager
async def three_hosts(services: Services, postgres_url: str, template: str) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        database_url = await stack.enter_async_context(own_database(postgres_url, f'TEMPLATE "{template}"'))
        store = await stack.enter_async_context(own_bucket(services))
        client = await stack.enter_async_context(own_namespace(services.need("temporal")["address"]))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nodes-", dir=services.root)))
        os.chmod(folder, 0o711)
        database = await open_database(database_url)
        stack.push_async_callback(database.close)
        installation = f"{services.installation}-nodes"
        await database.execute("UPDATE installation SET id = $1", installation)
        env = {
            **QUICK,
            "DATABASE_URL": database_url,
            "REDIS_URL": services.need("valkey")["url"],
            "S3_ENDPOINT": store.endpoint,
            "S3_ACCESS_KEY": store.access_key,
            "S3_SECRET_KEY": store.secret_key,
            "S3_BUCKET": store.bucket,
            "TEMPORAL_ADDRESS": services.need("temporal")["address"],
            "TEMPORAL_NAMESPACE": client.namespace,
            "WORKER_DRAIN_SECONDS": "2",
            # Only commands that are told where to log in may do so.
            "HOME": str(folder),
        }
        hosts: dict[str, Host] = {}
        for number, name in enumerate(("local", "b", "c"), start=1):
            # Where the end of a killed run looks for engines.
            data = services.root / f"{OWN_PREFIX}{name}"
            hosts[name] = Host(name, f"127.0.0.{number}", data, installation, env)
            stack.push_async_callback(hosts[name].close)
        for host in hosts.values():
            await host.start_engine()
        env["WORKSPACE_IMAGE"] = hosts["local"].image
        world = World(env, folder, database, client, hosts)
        for host in hosts.values():
            host.start_worker()
        apis = [_api(world, stack) for _ in range(APIS)]
        for host in hosts.values():
            assert host.worker
            await host.worker.said("worker_ready", PATIENT)
        for port, api in apis:
            await api.said("api_listening", PATIENT)
            world.people.append(await _person(port, stack, "admin"))
        world.env |= {"CODEHUB_URL": world.people[0].url, "CODEHUB_TOKEN": await _token(world.people[0])}
        try:
            yield world
            await world.clear()
        finally:
            for command in world.commands:
                if command.alive:
                    command.kill()


@asynccontextmanager
async def strict_apis(world: World, username: str) -> AsyncIterator[list[Person]]:
    """Two more API processes, that let each user have one RUNNING workspace; and a new user, logged in at both."""
    status, body = await world.people[0].ask("POST", "/api/v1/users", {"username": username, "password": PASSWORD})
    assert status == 201, body
    async with AsyncExitStack() as stack:
        apis = [_api(world, stack, LIMITS_MAX_RUNNING_PER_USER="1") for _ in range(APIS)]
        for _, api in apis:
            await api.said("api_listening", PATIENT)
        yield [await _person(port, stack, username) for port, _ in apis]


def _api(world: World, stack: AsyncExitStack, **env: str) -> tuple[int, Command]:
    port = free_port()
    api = Command(["api"], {**world.env, "CODEHUB_PORT": str(port), **env}, world.folder / f"api-{port}.log")
    world.commands.append(api)
    stack.callback(lambda: api.kill() if api.alive else None)
    return port, api


async def _person(port: int, stack: AsyncExitStack, username: str) -> Person:
    client = await stack.enter_async_context(
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True), timeout=aiohttp.ClientTimeout(30))
    )
    person = Person(client, f"http://127.0.0.1:{port}")
    await person.log_in(username, PASSWORD)
    return person


async def _token(person: Person) -> str:
    status, body = await person.ask("POST", "/api/v1/tokens", {"name": "command line"})
    assert status == 201, body
    return str(body["token"])
