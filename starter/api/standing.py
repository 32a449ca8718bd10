"""Whether a login still stands, for what goes on after the request that it came with."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from adapters.postgres.sessions import Identity
from adapters.telemetry.metrics import SKIPPED

log = structlog.get_logger()

# For the case that nobody tells.
_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Standing:
    identity: Identity
    still: Callable[[Identity], Awaitable[Identity | None]]
    changed: asyncio.Event
    """Set by whoever hears that it may have ended."""

    async def ended(self) -> None:
        """Returns when it has: by logout, a new password, revoking, disabling, or its own time."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._patience()):
                    await self.changed.wait()
            self.changed.clear()
            if not await self._stands():
                return

    def _patience(self) -> float:
        if self.identity.expires_at is None:
            return _SECONDS
        return max(0.0, min(_SECONDS, (self.identity.expires_at - datetime.now(UTC)).total_seconds()))

    async def _stands(self) -> bool:
        """Unknown is not ended."""
        try:
            return await self.still(self.identity) is not None
        except Exception as error:  # noqa: BLE001 - the next look will do
            SKIPPED.labels("standing").inc()
            log.warning("login_not_looked_at", error=repr(error))
            await asyncio.sleep(1)
            return True
