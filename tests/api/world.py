"""The API as a client meets it: a real uvicorn on loopback, a real PostgreSQL, and raw HTTP.

Temporal is stood in for by `RecordedWakes`, which keeps what it was told: the API only tells, and the integration
tests have a real Temporal listen.
"""

import asyncio
import io
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import aiohttp
from argon2 import PasswordHasher
from fastapi import FastAPI
from multidict import CIMultiDictProxy
from yarl import URL

from adapters.postgres.database import Database, open_database
from adapters.redis.events import EventBus
from domain.model import UserId, WorkspaceId
from starter.api.app import create_app
from starter.api.dependencies import ApiConfig, Check, Dependencies, assemble
from starter.api.logins import hash_secret, new_secret
from starter.api.passwords import Passwords
from starter.api.server import listen, serve_app
from tests.raw_http import RawClient
from workflows.client import TemporalUnavailable

PASSWORD = "correct horse battery"
NOBODY = str(uuid4())


@dataclass
class RecordedWakes:
    woken: list[WorkspaceId] = field(default_factory=list)
    away: bool = False
    hang: bool = False

    async def wake(self, workspace_id: WorkspaceId) -> None:
        if self.hang:
            await asyncio.Event().wait()
        if self.away:
            raise TemporalUnavailable("nobody there")
        self.woken.append(workspace_id)

    async def start(self, workspace_id: WorkspaceId) -> None:
        await self.wake(workspace_id)

    async def wake_all(self, workspaces: Iterable[WorkspaceId]) -> None:
        for workspace_id in workspaces:
            await self.wake(workspace_id)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: CIMultiDictProxy[str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Of an error, whose shape is checked on the way."""
        assert set(self.json) >= {"error"}, self.body
        assert set(self.json["error"]) == {"code", "message"}, self.body
        assert self.json["error"]["message"]
        return str(self.json["error"]["code"])

    @property
    def message(self) -> str:
        return str(self.json["error"]["message"])


@dataclass(frozen=True)
class Person:
    """A user with a session."""

    api: "Api"
    id: UserId
    username: str
    secret: str

    async def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        return await self.api(method, path, body, **{"Cookie": f"session={self.secret}", **headers})

    async def workspace(self, name: str = "one", **fields: Any) -> str:
        answer = await self("POST", "/api/v1/workspaces", {"name": name, "desired_state": "STANDBY", **fields})
        assert answer.status == 201, answer.body
        return str(answer.json["id"])


@dataclass(frozen=True)
class Api:
    url: str
    app: FastAPI
    deps: Dependencies
    wakes: RecordedWakes
    client: aiohttp.ClientSession

    @property
    def raw(self) -> RawClient:
        """For what an HTTP client would not send as it is."""
        return RawClient(URL(self.url).port or 0)

    async def __call__(self, method: str, path: str, body: Any = None, data: Any = None, **headers: str) -> Answer:
        """JSON unless `data` says otherwise; header names are given with underscores."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if data is None and body is not None:
            data = io.BytesIO(json.dumps(body).encode())
        if method == "POST" or data is not None:
            named.setdefault("Content-Type", "application/json")
        url = URL(self.url + path, encoded=True)
        async with self.client.request(method, url, data=data, headers=named, allow_redirects=False) as got:
            return Answer(got.status, got.headers, await got.read())

    async def person(self, username: str, *, is_admin: bool = False) -> Person:
        hashed = await self.deps.passwords.hash(PASSWORD)
        user = await self.deps.accounts.create(username, hashed, is_admin=is_admin)
        return await self.session_of(username, user.id)

    async def session_of(self, username: str, user_id: UserId) -> Person:
        credentials = await self.deps.accounts.credentials(username)
        assert credentials
        secret = new_secret()
        assert await self.deps.sessions.open(credentials, hash_secret(secret), self.deps.config.session_ttl)
        return Person(self, user_id, username, secret)

    async def login(self, username: str, password: str = PASSWORD, **headers: str) -> Answer:
        return await self("POST", "/api/v1/login", {"username": username, "password": password}, **headers)

    async def row(self, workspace_id: str, **columns: Any) -> None:
        """What the controller writes."""
        names = [f"{name} = ${number}" for number, name in enumerate(columns, 2)]
        await self.deps.database.execute(
            f"UPDATE workspaces SET {', '.join(names)} WHERE id = $1", workspace_id, *columns.values()
        )

    async def busy(self, workspace_id: str, operation: str = "STARTING") -> str:
        """An operation under way, with its line in the log."""
        return await busy(self.deps.database, workspace_id, operation)


async def busy(database: Database, workspace_id: str, operation: str) -> str:
    op_id = str(uuid4())
    await database.execute(
        "INSERT INTO operations (id, workspace_id, operation, previous_phase, started_at, attempts)"
        " VALUES ($1, $2, $3, 'STANDBY', now(), 1)",
        op_id,
        workspace_id,
        operation,
    )
    await database.execute(
        "UPDATE workspaces SET operation = $2, op_id = $3, op_started_at = now() WHERE id = $1",
        workspace_id,
        operation,
        op_id,
    )
    return op_id


@asynccontextmanager
async def serving(
    database_url: str,
    config: ApiConfig | None = None,
    checks: dict[str, Check] | None = None,
    bus: EventBus | None = None,
    watched: dict[str, Check] | None = None,
) -> AsyncIterator[Api]:
    # Weak on purpose: these tests hash often, and test_passwords looks at the real parameters.
    passwords = Passwords(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    database = await open_database(database_url)
    wakes = RecordedWakes()
    # A busy machine takes its time, also to make the first connection: test_health looks at deadlines.
    config = config or ApiConfig(default_image="ide:latest", check_deadline=60)
    deps = assemble(config, database, wakes, passwords, checks, bus, watched)
    app = create_app(deps)
    listener = listen("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    stop = asyncio.Event()
    server = asyncio.create_task(serve_app(app, listener, stop))
    connector = aiohttp.TCPConnector(limit=0)
    try:
        async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as client:
            api = Api(url, app, deps, wakes, client)
            yield api
    finally:
        if deps.hub is not None:
            deps.hub.shut()
        stop.set()
        await server
        await database.close()
        passwords.close()


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        await asyncio.sleep(0.02)
