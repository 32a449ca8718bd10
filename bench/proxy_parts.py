"""Processes of bench.proxy: the upstream that every proxy is measured with, and the server under measurement."""

import asyncio
import sys
from typing import cast

import uvicorn
import uvloop
import websockets
from redis.asyncio import Redis

from adapters.postgres.database import open_database
from adapters.postgres.migrate import migrate
from adapters.redis.events import EventBus
from domain.model import WorkspaceId
from starter.api.app import create_app
from starter.api.dependencies import ApiConfig, assemble
from starter.api.logins import hash_secret
from starter.api.passwords import Passwords
from starter.api.server import listen
from starter.proxy.proxy import Proxy

SESSION = "bench" * 8
WORKSPACE = "00000000-0000-4000-8000-000000000000"
ECHO_WORKSPACE = WORKSPACE.replace("0", "1")

_BODY = b"x" * 1024
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % len(_BODY) + _BODY


class _Answering(asyncio.Protocol):
    def __init__(self) -> None:
        self._held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        data = self._held + data
        heads = data.count(b"\r\n\r\n")
        self._held = data.rpartition(b"\r\n\r\n")[2] if heads else data
        for _ in range(heads):
            self._transport.write(_ANSWER)


async def upstream(port: int, echo_port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Answering, "127.0.0.1", port)

    async def echo(client: websockets.ServerConnection) -> None:
        async for message in client:
            await client.send(message)

    async with websockets.serve(echo, "127.0.0.1", echo_port):
        await server.serve_forever()


async def serve(port: int, database_url: str, redis_url: str, upstream_port: int, echo_port: int) -> None:
    await migrate(database_url)
    database = await open_database(database_url)
    passwords = Passwords()
    deps = assemble(ApiConfig(default_image="none"), database, _NoWakes(), passwords)
    user = await deps.accounts.create("bench", await passwords.hash("benchmarks only"))
    credentials = await deps.accounts.credentials("bench")
    if credentials is None:
        raise AssertionError("the user was made")
    await deps.sessions.open(credentials, hash_secret(SESSION), deps.config.session_ttl)
    for workspace_id, target in ((WORKSPACE, upstream_port), (ECHO_WORKSPACE, echo_port)):
        await database.execute(
            "INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state, phase, endpoint)"
            " VALUES ($1, $2, $3, 'none', 'RUNNING', 'RUNNING', $4)",
            workspace_id,
            user.id,
            workspace_id,
            f"127.0.0.1:{target}",
        )
    proxy = Proxy(deps, EventBus(Redis.from_url(redis_url)))
    config = uvicorn.Config(
        proxy.around(create_app(deps)),
        http=proxy.protocol,
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
    )
    async with proxy.running():
        await uvicorn.Server(config).serve([listen("127.0.0.1", port)])


class _NoWakes:
    async def wake(self, workspace_id: WorkspaceId) -> None:
        raise AssertionError(f"{workspace_id} is RUNNING")

    async def start(self, workspace_id: WorkspaceId) -> None:
        await self.wake(workspace_id)


def main() -> None:
    name, port, *rest = sys.argv[1:]
    if name == "upstream":
        uvloop.run(upstream(int(port), int(rest[0])))
    else:
        uvloop.run(serve(int(port), rest[0], rest[1], int(rest[2]), int(rest[3])))


if __name__ == "__main__":
    main()
