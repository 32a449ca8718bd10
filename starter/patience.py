"""A process whose services are not there yet waits for them, and says every few seconds what it waits for."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import urlsplit

import structlog

from adapters.postgres.database import DatabaseRefused, DatabaseUnavailable
from adapters.postgres.migrate import migrate
from settings import SettingsError

log = structlog.get_logger()

T = TypeVar("T")

_LETTING_GO = 2.0


class Stopped(Exception):
    """The process was told to stop while it waited."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Waits for as long as it takes, or until `stop` is set."""

    stop: asyncio.Event = field(default_factory=asyncio.Event)
    pause: float = 1.0
    tell_every: float = 5.0

    async def until_there(
        self, service: str, address: str, call: Callable[[], Awaitable[T]], *away: type[Exception]
    ) -> T:
        """What `call` returns, once it raises none of `away` any more. Raises Stopped."""
        told: float | None = None
        while True:
            try:
                found = await self._unless_stopped(call())
            except away as error:
                if told is None or time.monotonic() - told >= self.tell_every:
                    told = time.monotonic()
                    log.warning("waiting_for", service=service, address=address, error=str(error))
            else:
                if told is not None:
                    log.info("found", service=service, address=address)
                return found
            await self._unless_stopped(asyncio.sleep(self.pause))

    async def migrated(self, url: str) -> None:
        """PostgreSQL is there, and its schema is this version's."""
        address = address_of(url)
        try:
            await self.until_there("PostgreSQL", address, lambda: migrate(url), DatabaseUnavailable)
        except DatabaseRefused as error:
            raise SettingsError(f"DATABASE_URL: PostgreSQL at {address} can't be used: {error}") from error

    async def _unless_stopped(self, call: Awaitable[T]) -> T:
        work = asyncio.ensure_future(call)
        stopped = asyncio.ensure_future(self.stop.wait())
        try:
            await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise Stopped
            return work.result()
        finally:
            stopped.cancel()
            if not work.done():
                work.cancel()
                # A service that does not answer must not hold up the end.
                await asyncio.wait({work}, timeout=_LETTING_GO)


def address_of(url: str) -> str:
    """Where a URL leads, without what it tells about users and passwords."""
    parts = urlsplit(url)
    return f"{parts.netloc.rpartition('@')[2]}{parts.path}"
