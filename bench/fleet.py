"""Many workspaces on the engine in memory, driven as the API drives them: one transaction, then a signal."""

import asyncio
import json
import random
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
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
from domain.naming import DEFAULT_NODE, workflow_id
from settings import load_settings
from workflows.client import TemporalAddress, Waker
from workflows.client import connect as connect_temporal
from workflows.messages import WORKSPACE_WORKFLOW

RUNNING_SHARE = 10
"""One in so many is RUNNING, the others are STANDBY."""
_SECONDS = 300.0
_ONE_SECONDS = 60.0

_MAKE = """
INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state, node)
SELECT id, $3, id::text, 'none', wanted, $4 FROM unnest($1::uuid[], $2::text[]) AS new (id, wanted)
"""
_COPY = """
INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state, phase, conditions, observed_at, home_ctx,
                        endpoint, node)
SELECT new.id, $3, new.id::text, one.image_ref, one.desired_state, one.phase, one.conditions, now(), one.home_ctx,
       one.endpoint, $4
FROM unnest($1::uuid[], $2::text[]) AS new (id, wanted) JOIN (
    SELECT DISTINCT ON (phase) * FROM workspaces
    WHERE owner_user_id = $3 AND operation = 'NONE' AND phase = desired_state
) AS one ON one.phase = new.wanted
"""
_WANT = "UPDATE workspaces SET desired_state = $2 WHERE id = ANY($1::uuid[])"
_UNSETTLED = """
SELECT count(*) FROM workspaces WHERE id = ANY($1::uuid[]) AND (operation <> 'NONE' OR phase <> desired_state)
"""
_ENDED = """
SELECT extract(epoch FROM max(finished_at) - $2::timestamptz)::float8 AS seconds FROM operations
WHERE workspace_id = ANY($1::uuid[]) AND finished_at > $2 GROUP BY workspace_id
"""
_ASLEEP = (
    f"WorkflowType = '{WORKSPACE_WORKFLOW}' AND ExecutionStatus = 'Running'"
    " AND (Phase = 'STANDBY' OR Phase = 'RUNNING')"
)


@dataclass
class Fleet:
    simulation: Simulation
    database: Database
    redis: Redis
    client: Client
    waker: Waker
    desired: DesiredStates
    owner: str
    cached: int
    """Workflows that a worker keeps in its cache."""
    reserved: set[WorkspaceId] = field(default_factory=set)
    """Not to be chosen for anything."""
    dice: random.Random = field(default_factory=lambda: random.Random(7))
    _order: dict[WorkspaceId, None] = field(default_factory=dict)
    """All of them, the longest unused first: what a worker keeps in its cache are the last."""
    _changed: dict[WorkspaceId, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))

    @property
    def size(self) -> int:
        return len(self._order)

    async def make(self, count: int, node: str | None = None) -> float:
        """As people do, all at once, and until they are at rest; returns how long that took."""
        new, wanted = _new(count)
        began = time.monotonic()
        await self.database.execute(_MAKE, new, wanted, self.owner, node)
        await self.waker.wake_all(new)
        self.used(new)
        await self.settle(new)
        return time.monotonic() - began

    async def copy(self, count: int, node: str = DEFAULT_NODE) -> list[WorkspaceId]:
        """Rows at rest, as those are that were made. Each still has to be put to sleep. Nobody may watch the node
        meanwhile: its engine hears of them when its worker starts."""
        new, wanted = _new(count)
        await self.database.execute(_COPY, new, wanted, self.owner, node)
        return new

    async def put_to_sleep(self, workspaces: list[WorkspaceId]) -> None:
        """Until the workflow of each has looked at it, and has found nothing to do."""
        before = asleep = await self._asleep()
        await self.waker.wake_all(workspaces)
        self.used(workspaces)
        deadline = time.monotonic() + _ONE_SECONDS
        while asleep < before + len(workspaces):
            former, asleep = asleep, await self._asleep()
            if asleep > former:
                deadline = time.monotonic() + _ONE_SECONDS
            if time.monotonic() > deadline:
                left = before + len(workspaces) - asleep
                raise TimeoutError(f"{left} workflows have not begun, and none did for {_ONE_SECONDS:.0f} s")
            await asyncio.sleep(0.2)

    async def _asleep(self) -> int:
        """The first look shows the phase."""
        return (await self.client.count_workflows(_ASLEEP)).count

    async def settle(self, workspaces: list[WorkspaceId]) -> None:
        """Until each of these is where it is wanted."""
        deadline = time.monotonic() + _SECONDS
        while left := await self.database.fetchval(_UNSETTLED, workspaces):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{left} workspaces are still on their way after {_SECONDS:.0f} s")
            await asyncio.sleep(0.1)

    async def go(self, workspace: WorkspaceId, desired: DesiredState) -> float:
        """One transition, as its user waits for it: from the change to the row at rest."""
        arrived = self._changed[workspace]
        began = time.monotonic()
        await self.desired.set(workspace, desired)
        await self.waker.wake(workspace)
        self.used([workspace])
        async with asyncio.timeout(_ONE_SECONDS):
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

    async def all_at_once(self, workspaces: list[WorkspaceId], desired: DesiredState) -> list[float]:
        """How long each of them took until it was at rest."""
        began = await self.database.fetchval("SELECT clock_timestamp()")
        await self.database.execute(_WANT, workspaces, desired)
        await self.waker.wake_all(workspaces)
        self.used(workspaces)
        await self.settle(workspaces)
        waits = [row["seconds"] for row in await self.database.fetch(_ENDED, workspaces, began)]
        if len(waits) != len(workspaces):
            raise RuntimeError(f"{len(workspaces)} should have moved, and {len(waits)} did")
        return waits

    async def history(self, workspace: WorkspaceId) -> int:
        """How many events its workflow's has."""
        return (await self.client.get_workflow_handle(workflow_id(workspace)).describe()).history_length

    def used(self, workspaces: Iterable[WorkspaceId]) -> None:
        for workspace in workspaces:
            self._order.pop(workspace, None)
            self._order[workspace] = None

    async def at_rest(self, phase: DesiredState, count: int) -> list[WorkspaceId]:
        """Any of them."""
        return self._some(await self._in_phase(phase), count)

    async def in_cache(self, phase: DesiredState, count: int) -> list[WorkspaceId]:
        recent = set(list(self._order)[-self.cached // 2 :])
        return self._some([one for one in await self._in_phase(phase) if one in recent], count)

    async def not_in_cache(self, phase: DesiredState, count: int) -> list[WorkspaceId]:
        """None where the cache holds them all."""
        old = set(list(self._order)[: max(0, self.size - self.cached * 5 // 4)])
        return self._some([one for one in await self._in_phase(phase) if one in old], count)

    def changed(self, payload: str) -> None:
        self._changed[WorkspaceId(json.loads(payload)["id"])].set()

    async def _in_phase(self, phase: DesiredState) -> list[WorkspaceId]:
        rows = await self.database.fetch(
            "SELECT id FROM workspaces WHERE phase = $1 AND operation = 'NONE' ORDER BY id", phase
        )
        known = (WorkspaceId(str(row["id"])) for row in rows)
        return [one for one in known if one in self._order and one not in self.reserved]

    def _some(self, among: list[WorkspaceId], count: int) -> list[WorkspaceId]:
        return self.dice.sample(among, min(count, len(among)))


def _new(count: int) -> tuple[list[WorkspaceId], list[DesiredState]]:
    """And where each should be."""
    ids = [WorkspaceId(str(uuid4())) for _ in range(count)]
    return ids, [DesiredState.STANDBY if number % RUNNING_SHARE else DesiredState.RUNNING for number in range(count)]


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
            load_settings(env).worker_max_cached_workflows,
        )
        await listener.add_listener("ws_sse", lambda _connection, _pid, _channel, payload: made.changed(str(payload)))
        yield made
    finally:
        await listener.close()
        await redis.aclose()
        await database.close()
