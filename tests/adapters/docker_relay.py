"""A relay in front of the Docker engine that can be cut or made to hang, so that the engine itself stays up."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Self


class Relay:
    def __init__(self, docker_host: str, socket: Path) -> None:
        self._upstream = docker_host
        self._socket = socket
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()

    @property
    def url(self) -> str:
        return f"unix://{self._socket}"

    @property
    def connections(self) -> int:
        return len(self._connections)

    async def __aenter__(self) -> Self:
        await self.restore()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cut()

    async def cut(self) -> None:
        """As when the engine stops: connections break, new ones are refused."""
        if self._server:
            self._server.close()
            self._server = None
            self._socket.unlink(missing_ok=True)
        for connection in list(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def restore(self) -> None:
        self._flowing.set()
        if self._server is None:
            self._server = await asyncio.start_unix_server(self._accept, self._socket)

    def hang(self) -> None:
        """Connections are taken, nothing is answered."""
        self._flowing.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._connections.add(task)
        try:
            await self._relay(reader, writer)
        except (asyncio.CancelledError, OSError):
            # Cut; a server's task that ends as cancelled would be reported as an error.
            pass
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await self._connect()
        try:
            sent = asyncio.create_task(self._copy(reader, up_writer))
            received = asyncio.create_task(self._copy(up_reader, writer))
            try:
                await asyncio.wait({sent, received}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for half in (sent, received):
                    half.cancel()
                await asyncio.gather(sent, received, return_exceptions=True)
        finally:
            up_writer.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        scheme, _, address = self._upstream.partition("://")
        if scheme == "unix":
            return await asyncio.open_unix_connection(address)
        host, _, port = address.rpartition(":")
        return await asyncio.open_connection(host, int(port))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
