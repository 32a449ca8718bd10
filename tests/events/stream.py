"""A client of the live events, as a browser is one."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.api.world import Person


@dataclass
class Stream:
    content: aiohttp.StreamReader
    last_id: str | None = None
    seen: list[tuple[str, Any]] = field(default_factory=list)

    async def next(self, *kinds: str, seconds: float = 30) -> tuple[str, Any]:
        """The next event of one of these kinds; heartbeats are passed over unless asked for."""
        async with asyncio.timeout(seconds):
            while True:
                kind, body = await self._event()
                self.seen.append((kind, body))
                if kind in kinds or (not kinds and kind != "heartbeat"):
                    return kind, body

    async def until(self, workspace_id: str, seconds: float = 30, **fields: Any) -> dict[str, Any]:
        """The next state of this workspace in which these fields have these values."""
        while True:
            _, body = await self.next("workspace_updated", seconds=seconds)
            if body["id"] == workspace_id and all(body[name] == value for name, value in fields.items()):
                return dict(body)

    async def _event(self) -> tuple[str, Any]:
        kind, data = "", ""
        while True:
            line = (await self.content.readline()).decode()
            assert line, "the stream ended"
            text = line.rstrip("\n")
            if text.startswith("id: "):
                self.last_id = text[4:]
            elif text.startswith("event: "):
                kind = text[7:]
            elif text.startswith("data: "):
                data = text[6:]
            elif not text and kind:
                return kind, json.loads(data)


@asynccontextmanager
async def watching(person: Person, last_id: str | None = None, **headers: str) -> AsyncIterator[Stream]:
    headers = headers or {"Cookie": f"session={person.secret}"}
    if last_id:
        headers["Last-Event-ID"] = last_id
    timeout = aiohttp.ClientTimeout(total=None)
    url = f"{person.api.url}/api/v1/events"
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers, timeout=timeout) as answer:
        assert answer.status == 200
        assert answer.content_type == "text/event-stream"
        yield Stream(answer.content)
