"""`codehub api` as a process of its own, with one workspace that runs. Temporal is away: nothing here needs it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import aiohttp

from adapters.postgres.database import open_database
from tests.ports import free_port
from tests.processes.process import CodehubProcess

PASSWORD = "a password for tests"


@dataclass(frozen=True)
class Served:
    process: CodehubProcess
    port: int
    cookie: str
    workspace_id: str

    @property
    def path(self) -> str:
        return f"/w/{self.workspace_id}/"

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def head(self, method: str, *lines: str) -> bytes:
        first = [f"{method} {self.path} HTTP/1.1", f"Host: {self.host}", f"Cookie: {self.cookie}"]
        return "\r\n".join([*first, f"Origin: http://{self.host}", *lines, "", ""]).encode()


@asynccontextmanager
async def served(database_url: str, redis_url: str, endpoint: str, folder: Path) -> AsyncIterator[Served]:
    port = free_port()
    env = {
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "TEMPORAL_ADDRESS": "127.0.0.1:1",
        "CODEHUB_PORT": str(port),
        "CODEHUB_ADMIN_PASSWORD": PASSWORD,
        "ACTIVITY_FLUSH_INTERVAL": "3600",
    }
    process = CodehubProcess("api", env, folder / "api.log")
    try:
        await process.said("api_listening")
        yield Served(process, port, await _session(port), await _running(database_url, endpoint))
    finally:
        if process.alive:
            process.kill()


async def _session(port: int) -> str:
    body = {"username": "admin", "password": PASSWORD}
    url = f"http://127.0.0.1:{port}/api/v1/login"
    async with aiohttp.ClientSession() as client, client.post(url, json=body) as answer:
        assert answer.status == 200
        return f"session={answer.cookies['session'].value}"


async def _running(database_url: str, endpoint: str) -> str:
    """A workspace of admin's, as the controller left it."""
    database = await open_database(database_url)
    workspace_id = str(uuid4())
    await database.execute(
        "INSERT INTO workspaces (id, owner_user_id, name, image_ref, endpoint, phase, desired_state)"
        " SELECT $1, id, 'one', 'image', $2, 'RUNNING', 'RUNNING' FROM users WHERE username = 'admin'",
        workspace_id,
        endpoint,
    )
    await database.close()
    return workspace_id
