"""Many workspaces on the engine in memory, driven as the API drives them: one transaction, then a signal."""

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import uuid4

from redis.asyncio import Redis
from temporalio.client import Client

from adapters.postgres.database import Database, connect, open_database
from adapters.postgres.desired_state import DesiredStates
from bench.installation import MANY, Simulation
from bench.memory_worker import STARTED
from domain.limits import Limits
from domain.model import DesiredState, WorkspaceId
from workflows.client import TemporalAddress, Waker
from workflows.client import connect as connect_temporal

RUNNING_SHARE = 10
"""One in so many is RUNNING, the others are STANDBY."""
_SECONDS = 900.0


@dataclass
class Fleet:
    simulation: Simulation
    database: Database
    redis: Redis
    client: Client
    waker: Waker
    desired: DesiredStates
    owner: str
    ids: list[WorkspaceId] = field(default_factory=list)
    _changed: dict[WorkspaceId, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))

    async def grow(self, size: int) -> float:
        """To `size` workspaces at rest; returns how long that took."""
        new = [WorkspaceId(str(uuid4())) for _ in range(size - len(self.ids))]
        wanted = [
            DesiredState.RUNNING if number % RUNNING_SHARE == 0 else DesiredState.STANDBY for number in range(len(new))
        ]
        began = time.monotonic()
        await self.database.execute(
            "INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state)"
            " SELECT id, $3, id::text, 'none', wanted FROM unnest($1::uuid[], $2::text[]) AS new (id, wanted)",
            new,
            wanted,
            self.owner,
        )
        await self.waker.wake_all(new)
        self.ids += new
        await self.settle()
        return time.monotonic() - began

    async def settle(self) -> None:
        """Until every workspace is where it is wanted."""
        deadline = time.monotonic() + _SECONDS
        while left := await self.database.fetchval(
            "SELECT count(*) FROM workspaces WHERE operation <> 'NONE' OR phase <> desired_state"
        ):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{left} workspaces still on their way")
            await asyncio.sleep(0.1)

    async def go(self, workspace: WorkspaceId, desired: DesiredState) -> float:
        """One transition, as its user waits for it: from the change to the row at rest."""
        arrived = self._changed[workspace]
        began = time.monotonic()
        await self.desired.set(workspace, desired)
        await self.waker.wake(workspace)
        while True:
            await arrived.wait()
            arrived.clear()
            found = await self.database.fetchrow("SELECT phase, operation FROM workspaces WHERE id = $1", workspace)
            if found and found["operation"] == "NONE" and found["phase"] == desired:
                return time.monotonic() - began

    async def wake_latency(self, workspace: WorkspaceId, desired: DesiredState) -> float:
        """From the change of desired_state to the beginning of the operation that it leads to."""
        began = time.time()
        await self.go(workspace, desired)
        started = await self.redis.hget(STARTED, workspace)
        if started is None:
            raise RuntimeError(f"{workspace} went {desired} without an operation")
        return float(started) - began

    async def at_rest(self, phase: DesiredState, count: int) -> list[WorkspaceId]:
        rows = await self.database.fetch("SELECT id FROM workspaces WHERE phase = $1 LIMIT $2", phase, count)
        return [WorkspaceId(str(row["id"])) for row in rows]

    def changed(self, payload: str) -> None:
        self._changed[WorkspaceId(json.loads(payload)["id"])].set()


@asynccontextmanager
async def fleet(simulation: Simulation) -> AsyncIterator[Fleet]:
    env = simulation.env
    database = await open_database(env["DATABASE_URL"], max_size=8)
    redis: Redis = Redis.from_url(env["REDIS_URL"])
    client = await connect_temporal(TemporalAddress(env["TEMPORAL_ADDRESS"]))
    listener = await connect(env["DATABASE_URL"])
    try:
        owner = await database.fetchval("SELECT id FROM users WHERE username = 'admin'")
        made = Fleet(
            simulation,
            database,
            redis,
            client,
            Waker(client),
            DesiredStates(database, Limits(int(MANY), int(MANY))),
            owner,
        )
        await listener.add_listener("ws_sse", lambda _connection, _pid, _channel, payload: made.changed(str(payload)))
        yield made
    finally:
        await listener.close()
        await redis.aclose()
        await database.close()
