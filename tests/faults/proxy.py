"""A TCP or Unix socket between a client and its server that can be cut, slowed, silenced or closed."""

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.ports import free_port

_CHUNK = 64 * 1024
_RESET = struct.pack("ii", 1, 0)


@dataclass(slots=True)
class Cut:
    """Break a connection once this many bytes, from now on and over all connections, went one way."""

    after: int
    times: int = 1
    """How often; between them, `after` bytes pass again."""
    clean: bool = False
    """An ordinary end instead of a reset: what a server does that is being stopped."""
    passed: int = field(default=0, init=False)


class FaultProxy:
    """`async with FaultProxy("http://127.0.0.1:9000") as proxy`; `unix://` upstreams are proxied on `listen`."""

    def __init__(self, upstream: str, listen: Path | None = None, *, window: int | None = None) -> None:
        """`window`: bytes that it takes, on either side, before it has passed them on; else what the kernel likes."""
        self._scheme, _, self._address = upstream.partition("://")
        self._listen = listen
        self._window = window
        self._port = 0
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._delay = 0.0
        self._rates: dict[str, float | None] = {}
        self._cuts: dict[str, Cut] = {}
        self._then: Callable[[], None] | None = None
        self._refusing: asyncio.Future[None] | None = None
        self.connections = 0
        self.cuts = 0
        self.up = 0
        """Bytes from the client to the server."""
        self.down = 0

    @property
    def url(self) -> str:
        return f"unix://{self._listen}" if self._listen else f"{self._scheme}://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.refuse()

    async def heal(self) -> None:
        """Everything passes again."""
        self._flowing.set()
        self._delay, self._rates, self._cuts, self._then = 0.0, {}, {}, None
        await self._open()

    async def refuse(self) -> None:
        """As when the server is gone: connections break, new ones are refused."""
        if self._server:
            self._server.close()
            self._server = None
            if self._listen:
                self._listen.unlink(missing_ok=True)
        await self.cut()

    def refuse_from_now_on(self) -> None:
        """The same, from where nothing can be awaited."""
        self._refusing = asyncio.ensure_future(self.refuse())

    async def cut(self) -> None:
        """Break every connection; new ones pass."""
        links = list(self._links)
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)

    def black_hole(self) -> None:
        """Connections stay and are taken, nothing comes through either way."""
        self._flowing.clear()

    def forget(self) -> None:
        """As who translates addresses and drops a flow that was idle: what is open stays, and nothing comes through
        either way, for ever. New connections pass."""
        self._flowing.clear()
        self._flowing = asyncio.Event()
        self._flowing.set()

    def delay(self, seconds: float) -> None:
        """Before each piece that passes."""
        self._delay = seconds

    def throttle(self, *, up: float | None = None, down: float | None = None) -> None:
        """Bytes per second and connection."""
        self._rates = {"up": up, "down": down}

    def cut_after(
        self,
        *,
        up: int | None = None,
        down: int | None = None,
        times: int = 1,
        clean: bool = False,
        then: Callable[[], None] | None = None,
    ) -> None:
        """`then` is called at the first cut: `proxy.refuse_from_now_on`, say."""
        self._then = then
        if up is not None:
            self._cuts["up"] = Cut(up, times, clean)
        if down is not None:
            self._cuts["down"] = Cut(down, times, clean)

    async def _open(self) -> None:
        if self._server is not None:
            return
        if self._listen:
            self._server = await asyncio.start_unix_server(self._accept, self._listen)
            return
        # Kept, so that whoever was refused finds it again; and one that nobody else takes in between, not even a client
        # of this proxy as its own end of a connection.
        self._port = self._port or free_port()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        if self._window is not None:
            for listening in self._server.sockets:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._window)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = asyncio.current_task()
        assert link
        self._links.add(link)
        self.connections += 1
        try:
            await self._link(reader, writer)
        except (asyncio.CancelledError, OSError):
            # A server's task that ends as cancelled would be reported as an error.
            _reset(writer)
        finally:
            self._links.discard(link)
            writer.transport.abort()

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        flowing = self._flowing
        up_reader, up_writer = await self._connect()
        halves = {
            asyncio.create_task(self._copy(reader, up_writer, "up", flowing)),
            asyncio.create_task(self._copy(up_reader, writer, "down", flowing)),
        }
        try:
            done, _ = await asyncio.wait(halves, return_when=asyncio.FIRST_COMPLETED)
            if any(half.result() for half in done):
                _reset(writer)
                _reset(up_writer)
        finally:
            # Before anything is awaited: this may be cancelled a second time.
            up_writer.transport.abort()
            for half in halves:
                half.cancel()
            await asyncio.gather(*halves, return_exceptions=True)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._scheme == "unix":
            return await asyncio.open_unix_connection(self._address)
        host, _, port = self._address.rpartition(":")
        if self._window is None:
            return await asyncio.open_connection(host, int(port))
        narrow = socket.socket()
        narrow.setblocking(False)
        narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._window)
        try:
            await asyncio.get_running_loop().sock_connect(narrow, (host, int(port)))
        except BaseException:
            narrow.close()
            raise
        return await asyncio.open_connection(sock=narrow)

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str, flowing: asyncio.Event
    ) -> bool:
        """True when the connection is to be reset."""
        with suppress(OSError):
            while data := await reader.read(_CHUNK):
                await flowing.wait()
                if self._delay:
                    await asyncio.sleep(self._delay)
                if rate := self._rates.get(way):
                    await asyncio.sleep(len(data) / rate)
                cut = self._cuts.get(way)
                passed, ends = _until(cut, data)
                setattr(self, way, getattr(self, way) + len(passed))
                writer.write(passed)
                await writer.drain()
                if cut and ends:
                    self.cuts += 1
                    if self._then:
                        self._then()
                    return not cut.clean
        return False


def server_of(url: str) -> str:
    """Where the server is, without user, password and database."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('/')[0]}"


def through(url: str, proxy: FaultProxy) -> str:
    return url.replace(server_of(url).partition("://")[2], proxy.url.partition("://")[2])


def _until(cut: Cut | None, data: bytes) -> tuple[bytes, bool]:
    if cut is None or cut.times == 0:
        return data, False
    left = cut.after - cut.passed
    if len(data) < left:
        cut.passed += len(data)
        return data, False
    cut.times -= 1
    cut.passed = 0
    return data[:left], True


def _reset(writer: asyncio.StreamWriter) -> None:
    found: socket.socket | None = writer.get_extra_info("socket")
    if found is not None and found.family != socket.AF_UNIX:
        with suppress(OSError):
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)


Condition = Callable[[], bool]


async def eventually(condition: Condition, seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)
