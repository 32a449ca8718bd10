"""The proxy as clients and workspaces meet it: a real server on loopback in front of the real API, a real PostgreSQL
and Redis, and workspaces that are raw servers which remember every byte.

Temporal is stood in for by `RecordedWakes`, as in tests.api.world: the proxy only tells.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import uvicorn
from argon2 import PasswordHasher
from redis.asyncio import Redis

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

__all__ = ["until"]

END_SECONDS = 30.0

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True)
class Reply:
    """An HTTP answer, taken apart from raw bytes."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def get(self, name: str) -> str | None:
        found = self.all(name)
        return found[0] if found else None

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name.lower()]


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
class World:
    port: int
    proxy: Proxy
    deps: Dependencies
    wakes: RecordedWakes
    redis: Redis

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def origin(self) -> str:
        return f"http://{self.host}"

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

    async def raw(self, data: bytes, seconds: float = 30) -> bytes:
        """Everything that is answered to these bytes on a connection of their own, until it is closed or quiet."""
        answer = b""
        async with self.connect() as (reader, writer):
            writer.write(data)
            with suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(seconds):
                    while piece := await reader.read(65536):
                        answer += piece
                        if _is_whole(answer, data.startswith(b"HEAD ")):
                            break
        return answer

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)
        try:
            yield reader, writer
        except BaseException:
            # Whoever is at the other end may read no more: an orderly end would wait for it.
            writer.transport.abort()
            raise
        finally:
            await closed(writer)

    async def get(
        self, path: str, person: Person | None = None, method: str = "GET", body: bytes = b"", /, **headers: str
    ) -> Reply:
        """Header names are given with underscores."""
        named = {"Host": self.host, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if person is not None:
            named.setdefault("Cookie", person.cookie)
        if body:
            named["Content-Length"] = str(len(body))
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items()), "", ""]
        return reply(await self.raw("\r\n".join(lines).encode("latin-1") + body), method)

    async def open(self, path: str, person: Person | None, method: str = "GET", /, **headers: str) -> Reply:
        """As a browser's address bar does."""
        browser = {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document", "Sec_Fetch_Site": "none"}
        return await self.get(path, person, method, Accept="text/html,*/*", **{**browser, **headers})


async def comes(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Wait for it to come true."""

    async def is_true() -> bool:
        return condition()

    await until(is_true, seconds)


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError, BrokenPipeError):
        await writer.wait_closed()


def reply(raw: bytes, method: str = "GET") -> Reply:
    assert raw, "nothing was answered"
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = [(line.partition(":")[0], line.partition(":")[2].strip()) for line in lines]
    return Reply(int(first.split(" ")[1]), headers, b"" if method == "HEAD" else dechunked(headers, body))


def dechunked(headers: list[tuple[str, str]], body: bytes) -> bytes:
    if ("transfer-encoding", "chunked") not in [(name.lower(), value.lower()) for name, value in headers]:
        return body
    pieces = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        if not length:
            break
        pieces, body = pieces + body[:length], body[length + 2 :]
    return pieces


def _is_whole(answer: bytes, has_no_body: bool) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    if not end:
        return False
    low = head.lower()
    if b" 101 " in head[:14] or b" 100 " in head[:14]:
        return False
    if has_no_body or head[8:13] in {b" 204 ", b" 304 "}:
        return True
    if b"transfer-encoding: chunked" in low:
        return b"0\r\n" in body and body.endswith(b"\r\n\r\n")
    found = re.search(rb"content-length: (\d+)", low)
    return found is not None and len(body) >= int(found[1])


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
    server = uvicorn.Server(
        uvicorn.Config(
            proxy.around(create_app(deps)),
            http=proxy.protocol,
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
            yield World(listener.getsockname()[1], proxy, deps, wakes, redis)
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
