"""Live events: from the commit to one browser, and to a thousand."""

import asyncio
import json
import statistics
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import urlsplit
from uuid import uuid4

from yarl import URL

from adapters.postgres.database import open_database
from bench.growth import Growth
from bench.installation import Simulation
from bench.row import Row

SCREENS = 1_000
_CHANGES = 100
_MANY_CHANGES = 5
_SECONDS = 30.0


@dataclass
class Screen:
    """A client of the event stream that reads just enough: when did it hear of which memo?"""

    simulation: Simulation
    heard: dict[str, float] = field(default_factory=dict)
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)
    _task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        url = urlsplit(self.simulation.url)
        reader, self._writer = await asyncio.open_connection(url.hostname, url.port)
        cookies = self.simulation.session.cookie_jar.filter_cookies(URL(self.simulation.url))
        cookie = "; ".join(f"{name}={morsel.value}" for name, morsel in cookies.items())
        self._writer.write(f"GET /api/v1/events HTTP/1.1\r\nHost: {url.netloc}\r\nCookie: {cookie}\r\n\r\n".encode())
        await self._writer.drain()
        status = await reader.readline()
        if b" 200 " not in status:
            raise RuntimeError(f"the event stream answered {status!r}")
        self._task = asyncio.create_task(self._read(reader))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task:
            self._task.cancel()
        self._writer.close()

    async def hears(self, memo: str) -> float:
        async with asyncio.timeout(_SECONDS), self.arrived:
            await self.arrived.wait_for(lambda: memo in self.heard)
        return self.heard[memo]

    async def _read(self, reader: asyncio.StreamReader) -> None:
        async for line in reader:
            if line.startswith(b"data: ") and b'"memo"' in line:
                memo = json.loads(line[6:])["memo"]
                async with self.arrived:
                    self.heard[memo] = time.monotonic()
                    self.arrived.notify_all()


async def run(simulation: Simulation, _growth: Growth) -> list[Row]:
    database = await open_database(simulation.env["DATABASE_URL"], max_size=2)
    workspace = uuid4()
    owner = await database.fetchval("SELECT id FROM users WHERE username = 'admin'")
    try:
        await database.execute(
            "INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state, phase, archive_key)"
            " VALUES ($1, $2, 'events', 'none', 'ARCHIVED', 'ARCHIVED', 'none')",
            workspace,
            owner,
        )

        async def change(memo: str) -> float:
            await database.execute("UPDATE workspaces SET memo = $2 WHERE id = $1", workspace, memo)
            return time.monotonic()

        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(Screen(simulation))
            await change("hello")
            await first.hears("hello")
            single = []
            for number in range(_CHANGES):
                began = await change(f"one {number}")
                single.append((await first.hears(f"one {number}") - began) * 1000)
            screens = [await stack.enter_async_context(Screen(simulation)) for _ in range(SCREENS)]
            await change("all")
            await asyncio.gather(*(screen.hears("all") for screen in screens))
            many = []
            for number in range(_MANY_CHANGES):
                began = await change(f"many {number}")
                times = await asyncio.gather(*(screen.hears(f"many {number}") for screen in screens))
                many += [(heard - began) * 1000 for heard in times]
    finally:
        await database.execute("DELETE FROM workspaces WHERE id = $1", workspace)
        await database.close()
    note = f"p50 {statistics.median(single):.1f} ms"
    return [
        Row("commit → browser, p99", [_p99(single)], goal=200, unit="ms", note=note),
        Row(
            f"commit → {SCREENS:,} browsers, p99",
            [_p99(many)],
            goal=1000,
            unit="ms",
            note=f"p50 {statistics.median(many):.0f} ms; the clients share the machine",
        ),
    ]


def _p99(taken: list[float]) -> float:
    return statistics.quantiles(taken, n=100)[98]
