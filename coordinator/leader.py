"""Leader election by PostgreSQL session lock (SPEC 10): the lock goes with the connection."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic

import asyncpg
import structlog

from adapters.postgres.database import Connection, DatabaseUnavailable
from adapters.postgres.lock import PING_INTERVAL, keep_alive, open_lock_connection, record_holder, try_lock
from adapters.tasks import end, supervised
from adapters.telemetry.metrics import LEADER, LEADERSHIPS
from domain.errors import Unreachable

log = structlog.get_logger()

Component = Callable[[], Awaitable[None]]
_LEAST_PAUSE = 0.1


@dataclass(slots=True)
class Leader:
    """Runs its components while it holds the lock, and tries again for as long as it lives."""

    database_url: str
    node_id: str
    components: dict[str, Component]
    lock_id: int = 12345
    lock_name: str = "coordinator"
    retry_interval: float = 5.0
    leading_since: float | None = field(default=None, init=False)

    @property
    def is_leader(self) -> bool:
        return self.leading_since is not None

    @property
    def uptime_seconds(self) -> float:
        return monotonic() - self.leading_since if self.leading_since is not None else 0.0

    def told(self) -> dict[str, object]:
        """SPEC 10: what `GET /health/coordinator` of this process says."""
        return {"is_leader": self.is_leader, "node_id": self.node_id, "uptime_seconds": round(self.uptime_seconds, 3)}

    async def run(self) -> None:
        while True:
            began = monotonic()
            try:
                await self._try_to_lead()
            except DatabaseUnavailable as error:
                log.warning("leader_cannot_reach_database", error=str(error))
            except Exception:
                # Whatever it was: without a leader nobody wakes what drifts.
                log.exception("leader_failed", node=self.node_id)
            # From begin to begin: how long it takes to connect does not make it later.
            await asyncio.sleep(max(_LEAST_PAUSE, self.retry_interval - (monotonic() - began)))

    async def _try_to_lead(self) -> None:
        connection = await open_lock_connection(self.database_url)
        try:
            if await try_lock(connection, self.lock_id):
                await self._lead(connection)
        finally:
            self.leading_since = None
            LEADER.labels(self.lock_name).set(0)
            # Ends the session, and with it the lock, even when the server does not answer any more.
            connection.terminate()

    async def _lead(self, connection: Connection) -> None:
        await record_holder(connection, self.lock_name, self.node_id)
        self.leading_since = monotonic()
        LEADER.labels(self.lock_name).set(1)
        LEADERSHIPS.labels(self.lock_name).inc()
        log.info("leading", node=self.node_id, lock=self.lock_name)
        running = [
            asyncio.create_task(supervised(name, run, DatabaseUnavailable, Unreachable), name=name)
            for name, run in self.components.items()
        ]
        try:
            while True:
                await keep_alive(connection)
                await asyncio.sleep(PING_INTERVAL)
        except (DatabaseUnavailable, asyncpg.PostgresError) as error:
            log.warning("leadership_lost", node=self.node_id, lock=self.lock_name, error=str(error))
        finally:
            await end(running)
