"""The proxy as clients and workspaces meet it: a real server on loopback in front of the real API, a real PostgreSQL
and Redis, and workspaces that are raw servers which remember every byte.

Temporal is stood in for by `RecordedWakes`, as in tests.api.world: the proxy only tells.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import uvicorn
from argon2 import PasswordHasher
from redis.asyncio import Redis
from starlette.types import ASGIApp, Receive, Scope, Send

from adapters.postgres.database import open_database
from adapters.redis.events import EventBus
from domain.hosts import Hosts
from domain.limits import Limits
from domain.model import UserId, WorkspaceId
from starter.api.app import create_app
from starter.api.dependencies import ApiConfig, Dependencies, assemble
from starter.api.forwarded import TrustedProxies
from starter.api.logins import hash_secret, new_secret
from starter.api.passwords import Passwords
from starter.api.server import listen
from starter.proxy.proxy import Proxy
from tests.api.world import PASSWORD, RecordedWakes, busy, until
from tests.raw_http import LAST, RawClient, Reply, closed, reply

__all__ = ["Reply", "closed", "reply", "until"]

END_SECONDS = 30.0

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Workspace:
    """A server that keeps what came in, connection by connection, and answers by script."""

    port: int = 0
    connections: list[bytearray] = field(default_factory=list)
    answer: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    handler: Handler | None = None
    writers: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def received(self) -> bytes:
        return b"".join(bytes(one) for one in self.connections)

    @property
    def requests(self) -> int:
        """How many requests are in what came, for whoever reads it least strictly."""
        return len(re.findall(rb"[A-Za-z]+ \S+ HTTP/1\.[01]\r?\n", self.received))

    def headers(self) -> list[tuple[str, str]]:
        """Of the last request."""
        head = bytes(self.connections[-1]).rpartition(b" HTTP/1.1\r\n")[2].partition(b"\r\n\r\n")[0]
        return [
            (line.partition(":")[0].lower(), line.partition(":")[2].strip())
            for line in head.decode("latin-1").split("\r\n")
        ]

    def header(self, name: str) -> list[str]:
        return [value for key, value in self.headers() if key == name]

    def has(self, data: bytes) -> bool:
        return data in self.received

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kept = bytearray()
        self.connections.append(kept)
        self.writers.add(writer)
        try:
            if self.handler is not None:
                await self.handler(_Kept(reader, kept), writer)
                return
            while data := await reader.read(65536):
                kept += data
                # A whole request each time: the scripts that need more bring a handler.
                writer.write(self.answer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            await closed(writer)
            self.writers.discard(writer)


class _Kept(asyncio.StreamReader):
    """A reader that remembers what was read."""

    def __init__(self, reader: asyncio.StreamReader, kept: bytearray) -> None:
        self.__dict__ = reader.__dict__
        self.kept = kept

    async def read(self, n: int = -1) -> bytes:
        data = await super().read(n)
        self.kept += data
        return data


@dataclass(frozen=True)
class Person:
    id: UserId
    username: str
    secret: str

    @property
    def cookie(self) -> str:
        return f"session={self.secret}"


@dataclass(frozen=True)
class World(RawClient):
    proxy: Proxy
    deps: Dependencies
    wakes: RecordedWakes
    redis: Redis
    seen: list[str]
    """What got to the API and the dashboard: method and path of each request, but for the end of an `exchange`."""

    async def person(self, username: str) -> Person:
        hashed = await self.deps.passwords.hash(PASSWORD)
        user = await self.deps.accounts.create(username, hashed)
        credentials = await self.deps.accounts.credentials(username)
        assert credentials
        secret = new_secret()
        assert await self.deps.sessions.open(credentials, hash_secret(secret), self.deps.config.session_ttl)
        return Person(user.id, username, secret)

    async def row(self, owner: Person, endpoint: str | None = None, name: str | None = None, **columns: Any) -> str:
        """A workspace as the controller left it; RUNNING unless told otherwise."""
        given = {"phase": "RUNNING", "desired_state": "RUNNING", **columns}
        if given["phase"] == "ARCHIVED":
            given.setdefault("archive_key", "k")
        workspace_id = str(uuid4())
        names = ["id", "owner_user_id", "name", "image_ref", "endpoint", *given]
        values = [workspace_id, owner.id, name or f"ws {workspace_id[:4]}", "image", endpoint, *given.values()]
        places = ", ".join(f"${number}" for number in range(1, len(values) + 1))
        await self.deps.database.execute(f"INSERT INTO workspaces ({', '.join(names)}) VALUES ({places})", *values)
        return workspace_id

    async def update(self, workspace_id: str, **columns: Any) -> None:
        """And what an event would say of it."""
        names = [f"{name} = ${number}" for number, name in enumerate(columns, 2)]
        await self.deps.database.execute(
            f"UPDATE workspaces SET {', '.join(names)} WHERE id = $1", workspace_id, *columns.values()
        )
        self.proxy.directory.invalidate(WorkspaceId(workspace_id))

    async def busy(self, workspace_id: str, operation: str) -> None:
        await busy(self.deps.database, workspace_id, operation)
        self.proxy.directory.invalidate(WorkspaceId(workspace_id))

    async def desired(self, workspace_id: str) -> str:
        return str(
            await self.deps.database.fetchval("SELECT desired_state FROM workspaces WHERE id = $1", workspace_id)
        )

    async def get(
        self, path: str, person: Person | None = None, method: str = "GET", body: bytes = b"", /, **headers: str
    ) -> Reply:
        """Header names are given with underscores."""
        named = {"Host": self.host, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if person is not None:
            named.setdefault("Cookie", person.cookie)
        return await self.send(method, path, named, body)

    async def open(self, path: str, person: Person | None, method: str = "GET", /, **headers: str) -> Reply:
        """As a browser's address bar does."""
        browser = {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document", "Sec_Fetch_Site": "none"}
        return await self.get(path, person, method, Accept="text/html,*/*", **{**browser, **headers})


async def comes(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Wait for it to come true."""

    async def is_true() -> bool:
        return condition()

    await until(is_true, seconds)


@asynccontextmanager
async def serving(
    database_url: str,
    redis_url: str,
    limits: Limits | None = None,
    flush_interval: float = 30,
    trusted: str = "",
    host_pattern: str | None = None,
    keep_alive: int = 65,
) -> AsyncIterator[World]:
    """`host_pattern`: the hub is then hub.localhost, on whatever port it gets. `keep_alive`: seconds of an idle
    connection.
    """
    # Weak on purpose: sessions are made here by the dozen.
    passwords = Passwords(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    database = await open_database(database_url)
    redis: Redis = Redis.from_url(redis_url)
    wakes = RecordedWakes()
    api = ApiConfig(default_image="ide", limits=limits or Limits(), trusted_proxies=TrustedProxies.parse(trusted))
    bus = EventBus(redis)
    deps = assemble(api, database, wakes, passwords, bus=bus)
    listener = listen("127.0.0.1", 0)
    hub = f"http://hub.localhost:{listener.getsockname()[1]}"
    hosts = Hosts(host_pattern, hub) if host_pattern else None
    proxy = Proxy(deps, bus, flush_interval=flush_interval, hosts=hosts)
    seen: list[str] = []
    server = uvicorn.Server(
        uvicorn.Config(
            proxy.around(_noted(create_app(deps), seen)),
            http=proxy.protocol,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=keep_alive,
            timeout_graceful_shutdown=1,
        )
    )
    async with proxy.running():
        serving = asyncio.create_task(server._serve([listener]))
        try:
            yield World(listener.getsockname()[1], proxy, deps, wakes, redis, seen)
        finally:
            server.should_exit = True
            async with asyncio.timeout(END_SECONDS):
                await serving
    async with asyncio.timeout(END_SECONDS):
        await redis.aclose()
        await database.close()
    passwords.close()


@asynccontextmanager
async def workspace(handler: Handler | None = None) -> AsyncIterator[Workspace]:
    made = Workspace(handler=handler)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, limit=1 << 20)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for writer in list(made.writers):
            writer.transport.abort()
        await comes(lambda: not made.writers)


def _noted(app: ASGIApp, seen: list[str]) -> ASGIApp:
    async def noting(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan" and scope["path"] != LAST:
            seen.append(f"{scope.get('method', scope['type'])} {scope['path']}")
        await app(scope, receive, send)

    return noting
