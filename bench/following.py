"""The workspaces as a screen sees them: by the event stream, so that waiting for one costs the installation nothing."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp

_FOREVER = aiohttp.ClientTimeout(total=None)
_SECONDS = 300.0
"""Longer than anything takes: whoever waits for more waits in vain."""


class StreamEnded(Exception):
    """Nobody would hear of anything any more."""


@dataclass
class Following:
    shown: dict[str, dict[str, Any]] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    ended: str = ""
    """Why there is no stream any more."""
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def until(self, workspace: str, phase: str) -> dict[str, Any]:
        """At rest in that phase."""
        await self._wait(lambda: self._is_there(workspace, phase), f"{workspace} to be {phase}")
        return self.shown[workspace]

    async def until_gone(self, workspace: str) -> None:
        await self._wait(lambda: workspace in self.deleted, f"{workspace} to be deleted")

    def _is_there(self, workspace: str, phase: str) -> bool:
        found = self.shown.get(workspace)
        if found is None:
            return False
        if found["phase"] == "ERROR":
            raise RuntimeError(f"{workspace}: {found['error_reason']}")
        return bool(found["phase"] == phase and found["operation"] == "NONE")

    async def _wait(self, there: Callable[[], bool], what: str) -> None:
        def is_over() -> bool:
            if self.ended:
                raise StreamEnded(f"waited for {what}, and the event stream ended: {self.ended}")
            return there()

        try:
            async with asyncio.timeout(_SECONDS), self._changed:
                await self._changed.wait_for(is_over)
        except TimeoutError:
            raise TimeoutError(f"waited {_SECONDS:.0f} s for {what}") from None

    async def read(self, answer: aiohttp.ClientResponse) -> None:
        """Until it ends; whoever waits is told."""
        event, why = "", "the server closed it"
        try:
            async for line in answer.content:
                kind, _, text = line.decode().strip().partition(": ")
                if kind == "event":
                    event = text
                elif kind == "data":
                    await self._heard(event, json.loads(text))
        except (aiohttp.ClientError, ValueError) as error:
            why = repr(error)
        async with self._changed:
            self.ended = why
            self._changed.notify_all()

    async def _heard(self, event: str, body: dict[str, Any]) -> None:
        async with self._changed:
            if event == "workspace_updated":
                self.shown[body["id"]] = body
            elif event == "workspace_deleted":
                self.deleted.add(body["id"])
            self._changed.notify_all()


@asynccontextmanager
async def following(session: aiohttp.ClientSession, url: str) -> AsyncIterator[Following]:
    follower = Following()
    async with session.get(f"{url}/api/v1/events", timeout=_FOREVER, read_bufsize=2**20) as answer:
        answer.raise_for_status()
        reading = asyncio.create_task(follower.read(answer))
        try:
            yield follower
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading
