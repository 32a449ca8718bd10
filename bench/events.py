"""Live events: from the commit to one browser, and to a thousand, of several users."""

import asyncio
import itertools
import json
import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from adapters.postgres.database import open_database
from bench.installation import PASSWORD, Simulation
from bench.part import Part
from bench.row import Row, figure, quantile
from bench.sizes import Sizes

_ROUNDS = 5
_SECONDS = 30.0

# The first user comes first.
_MAKE = """
INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state, phase, archive_key)
SELECT gen_random_uuid(), id, 'events', 'none', 'ARCHIVED', 'ARCHIVED', 'none' FROM users
WHERE username LIKE $1 ORDER BY username RETURNING id
"""


@dataclass
class Screen:
    """A client of the event stream that reads just enough: when did it hear of which memo?"""

    url: str
    cookie: str
    heard: dict[str, float] = field(default_factory=dict)
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)
    _task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        url = urlsplit(self.url)
        reader, self._writer = await asyncio.open_connection(url.hostname, url.port)
        asked = f"GET /api/v1/events HTTP/1.1\r\nHost: {url.netloc}\r\nCookie: {self.cookie}\r\n\r\n"
        self._writer.write(asked.encode())
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
    """The screens are dealt out to the users in turn; each user has one workspace, and all of these change at once."""
    database = await open_database(simulation.env["DATABASE_URL"], max_size=2)
    try:
        async with AsyncExitStack() as stack:
            cookies = [await _user(simulation, f"screens-{number}") for number in range(sizes.users)]
            workspaces = [str(row["id"]) for row in await database.fetch(_MAKE, "screens-%")]
            opened = (Screen(simulation.url, cookie) for cookie in itertools.cycle(cookies))

            async def heard(memo: str, workspaces: Sequence[str], by: Sequence[Screen]) -> list[float]:
                """Milliseconds until each of them knows. The commit is in it: by the time at which it is answered, the
                first screens may have heard."""
                began = time.monotonic()
                await database.execute("UPDATE workspaces SET memo = $2 WHERE id = ANY($1::uuid[])", workspaces, memo)
                times = await asyncio.gather(*(screen.hears(memo) for screen in by))
                return [(one - began) * 1000 for one in times]

            screens = [await stack.enter_async_context(next(opened))]
            await heard("hello", workspaces[:1], screens)
            rounds = [
                [(await heard(f"one {turn} {number}", workspaces[:1], screens))[0] for number in range(sizes.changes)]
                for turn in range(_ROUNDS)
            ]
            part.add(_row("commit → browser", rounds, 200))
            for size in sizes.screens:
                while len(screens) < size:
                    screens.append(await stack.enter_async_context(next(opened)))
                await heard(f"all {size}", workspaces, screens)
                rounds = [await heard(f"{size} {number}", workspaces, screens) for number in range(_ROUNDS)]
                tail = statistics.median(quantile(taken, 99) for taken in rounds)
                part.growth.add("commit → all of N browsers, p99", size, tail)
                if size == sizes.screens[-1]:
                    told = f"; of {sizes.users} users; the clients share the machine"
                    part.add(_row(f"commit → {size:,} browsers", rounds, 1000, told))
    finally:
        await database.execute("DELETE FROM workspaces WHERE name = 'events'")
        await database.close()


async def _user(simulation: Simulation, name: str) -> str:
    """A new one, who has logged in: the cookie."""
    person = {"username": name, "password": PASSWORD}
    async with simulation.session.post(f"{simulation.url}/api/v1/users", json=person) as answer:
        answer.raise_for_status()
    jar = aiohttp.CookieJar(unsafe=True)  # an address is no site to it
    async with aiohttp.ClientSession(headers={"Origin": simulation.url}, cookie_jar=jar) as session:
        async with session.post(f"{simulation.url}/api/v1/login", json=person) as answer:
            answer.raise_for_status()
        held = session.cookie_jar.filter_cookies(URL(simulation.url))
    return "; ".join(f"{name}={morsel.value}" for name, morsel in held.items())


def _row(name: str, rounds: Sequence[Sequence[float]], goal: float, more: str = "") -> Row:
    """The p99 of each round; and what is usual, of all of them."""
    usual = statistics.median(one for taken in rounds for one in taken)
    note = f"p50 {figure(usual)} ms; {len(rounds)} rounds of {len(rounds[0]):,}{more}"
    return Row(f"{name}, p99", [quantile(taken, 99) for taken in rounds], goal=goal, unit="ms", note=note)
