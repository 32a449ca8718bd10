"""PostgreSQL away: every route says so with 503, and all is well when it is back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from tests.api.world import PASSWORD, Person, serving, until

PATH = "/api/v1/workspaces"


class Line:
    """A TCP line to the server that can be cut."""

    def __init__(self, host: str, port: int) -> None:
        self.target = (host, port)
        self.cut = False
        self.open: set[asyncio.StreamWriter] = set()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open.add(writer)
        try:
            if not self.cut:
                far_reader, far_writer = await asyncio.open_connection(*self.target)
                self.open.add(far_writer)
                await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        finally:
            writer.close()

    def set_cut(self, cut: bool) -> None:
        self.cut = cut
        for writer in self.open if cut else ():
            writer.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def line(database_url: str) -> AsyncIterator[tuple[Line, str]]:
    server = urlsplit(database_url)
    assert server.hostname
    assert server.port
    wire = Line(server.hostname, server.port)
    listener = await asyncio.start_server(wire.connected, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    try:
        yield wire, server._replace(netloc=f"{server.username}:{server.password}@127.0.0.1:{port}").geturl()
    finally:
        wire.set_cut(True)
        listener.close()


async def test_postgresql_away(database_url: str) -> None:
    """503 with Retry-After on reads and writes alike, nothing half done, and back by itself."""
    async with line(database_url) as (wire, url), serving(url) as api:
        alice = await api.person("alice")
        one = await alice.workspace()
        wire.set_cut(True)

        for method, path, body in (
            ("GET", PATH, None),
            ("GET", f"{PATH}/{one}", None),
            ("POST", PATH, {"name": "two"}),
            ("PATCH", f"{PATH}/{one}", {"desired_state": "RUNNING"}),
            ("DELETE", f"{PATH}/{one}", None),
            ("POST", "/api/v1/login", {"username": "alice", "password": PASSWORD}),
            ("GET", "/health/coordinator", None),
        ):
            answer = await alice(method, path, body)
            assert (answer.status, answer.code) == (503, "database_unavailable"), (method, path)
            assert int(answer.headers["Retry-After"]) > 0
        ready = await api("GET", "/health/ready")
        assert (ready.status, ready.message) == (503, "postgresql does not answer")
        assert (await api("GET", "/health/live")).status == 200

        wire.set_cut(False)

        await until(lambda: _works(alice))
        assert [item["desired_state"] for item in (await alice("GET", PATH)).json["items"]] == ["STANDBY"]
        assert api.wakes.woken == [one]


async def _works(person: Person) -> bool:
    return (await person("GET", PATH)).status == 200
