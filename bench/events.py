"""Live events: from the commit to one browser, and to a thousand."""

import asyncio
import json
import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import urlsplit
from uuid import uuid4

from yarl import URL

from adapters.postgres.database import open_database
from bench.installation import Simulation
from bench.part import Part
from bench.row import Row, figure, quantile
from bench.sizes import Sizes

_ROUNDS = 5
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


async def run(simulation: Simulation, part: Part, sizes: Sizes) -> None:
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

        async def heard(memo: str, by: Sequence[Screen]) -> list[float]:
            """Milliseconds from the commit to each of them."""
            await database.execute("UPDATE workspaces SET memo = $2 WHERE id = $1", workspace, memo)
            began = time.monotonic()
            times = await asyncio.gather(*(screen.hears(memo) for screen in by))
            return [(one - began) * 1000 for one in times]

        async with AsyncExitStack() as stack:
            screens = [await stack.enter_async_context(Screen(simulation))]
            await heard("hello", screens)
            rounds = [
                [(await heard(f"one {turn} {number}", screens))[0] for number in range(sizes.changes)]
                for turn in range(_ROUNDS)
            ]
            part.add(_row("commit → browser", rounds, 200))
            for size in sizes.screens:
                while len(screens) < size:
                    screens.append(await stack.enter_async_context(Screen(simulation)))
                await heard(f"all {size}", screens)
                rounds = [await heard(f"{size} {number}", screens) for number in range(_ROUNDS)]
                tail = statistics.median(quantile(taken, 99) for taken in rounds)
                part.growth.add("commit → all of N browsers, p99", size, tail)
                if size == sizes.screens[-1]:
                    part.add(_row(f"commit → {size:,} browsers", rounds, 1000, "; the clients share the machine"))
    finally:
        await database.execute("DELETE FROM workspaces WHERE id = $1", workspace)
        await database.close()


def _row(name: str, rounds: Sequence[Sequence[float]], goal: float, more: str = "") -> Row:
    """The p99 of each round; and what is usual, of all of them."""
    usual = statistics.median(one for taken in rounds for one in taken)
    note = f"p50 {figure(usual)} ms; {len(rounds)} rounds of {len(rounds[0]):,}{more}"
    return Row(f"{name}, p99", [quantile(taken, 99) for taken in rounds], goal=goal, unit="ms", note=note)
