"""The numbers that are kept instead of counted, counted once in a while."""

import asyncio
from dataclasses import dataclass

import structlog

from adapters.postgres.database import DatabaseUnavailable
from adapters.postgres.tallies import Tallies
from adapters.telemetry.metrics import SKIPPED

log = structlog.get_logger()


@dataclass(slots=True)
class Bookkeeper:
    """When it begins to lead, as after a restore, and then every hour."""

    tallies: Tallies
    interval: float = 3600.0

    async def run(self) -> None:
        while True:
            try:
                await self.tallies.recount()
            except DatabaseUnavailable as error:
                SKIPPED.labels("bookkeeper").inc()
                log.warning("not_recounted", error=str(error))
            await asyncio.sleep(self.interval)
