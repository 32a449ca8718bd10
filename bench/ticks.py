"""The TTL tick: activity into the rows, and what expires; which of these takes how long; and the waking, which the
leader does when it hears of the change."""

import functools
import statistics
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from redis.asyncio import Redis
from temporalio.client import Client
from temporalio.service import RPCError

from activities.ttl import TtlRunner
from adapters.postgres.ttl import Expiry
from adapters.redis.activity import ActivityLog
from bench.part import Part
from bench.population import Population, milliseconds
from bench.row import Row, figure
from domain.model import WorkspaceId
from domain.naming import workflow_id
from domain.ttl import TtlDefaults
from workflows.client import TemporalAddress, Waker
from workflows.client import connect as connect_temporal

ACTIVE_SHARE = 100
"""One of so many rows was used since the last tick."""
# Not the one that the installation's own ticks empty.
_KEY = "bench:activity"
# Nobody serves it: what the woken workflows would do is not the tick's.
_QUEUE = "bench-nobody"
_DEFAULTS = TtlDefaults(standby=timedelta(days=1), archive=timedelta(days=9))

_EXPIRE = """
UPDATE workspaces SET last_access_at = now() - interval '9 days', phase_changed_at = now() - interval '9 days'
WHERE name = ANY(SELECT 'w' || n FROM generate_series(0, $1::int - 1) AS n) AND phase = 'RUNNING' RETURNING id
"""
_UNDO = "UPDATE workspaces SET desired_state = phase, last_access_at = now() WHERE id = ANY($1::uuid[])"
_USED = "SELECT id FROM workspaces WHERE phase = 'RUNNING' AND NOT (id = ANY($1::uuid[])) ORDER BY random() LIMIT $2"


@dataclass
class Ticking:
    population: Population
    client: Client
    activity: ActivityLog
    expiring: int
    woken: set[WorkspaceId] = field(default_factory=set)

    async def measure(self, part: Part, count: int, *, last: bool) -> None:
        taken: list[float] = []
        waking: list[float] = []
        spent: dict[str, float] = defaultdict(float)
        waker, expiry = Waker(self.client, _QUEUE), Expiry(self.population.database, _DEFAULTS)
        runner = TtlRunner(*(cast("Any", _Timed(one, spent)) for one in (expiry, self.activity)))
        active = self.population.count // ACTIVE_SHARE
        for _ in range(count):
            expiring = [
                WorkspaceId(str(row["id"])) for row in await self.population.database.fetch(_EXPIRE, self.expiring)
            ]
            # Whoever is RUNNING has a workflow already.
            waking.append(await milliseconds(functools.partial(waker.wake_all, expiring)))
            self.woken |= set(expiring)
            used = await self.population.database.fetch(_USED, expiring, active)
            await self.activity.record({WorkspaceId(str(row["id"])): datetime.now(UTC) for row in used})
            began = time.monotonic()
            report = await runner.tick()
            taken.append((time.monotonic() - began) * 1000)
            await self.population.database.execute(_UNDO, expiring)
            if (report.standby, report.archived, report.active) != (self.expiring, 0, len(used)):
                raise RuntimeError(f"{self.expiring} should have expired, and {len(used)} were active: {report}")
        what = f"TTL tick, {self.expiring} expiring, 1 % active"
        part.growth.add(what, self.population.count, statistics.median(taken))
        if last:
            of_it = ", ".join(f"{name} {figure(milli / count)}" for name, milli in spent.items())
            note = f"{self.expiring} expire, {active:,} are active. Of it, in ms: {of_it}"
            part.add(
                Row(f"TTL tick over {self.population.count:,} rows", taken, goal=200, unit="ms", note=note),
                Row(f"{self.expiring} workspaces woken", waking, unit="ms", note="a signal each, none is waited for"),
            )


@asynccontextmanager
async def ticking(population: Population, expiring: int) -> AsyncIterator[Ticking]:
    """What it woke is ended with it."""
    redis: Redis = Redis.from_url(population.simulation.env["REDIS_URL"])
    client = await connect_temporal(TemporalAddress(population.simulation.env["TEMPORAL_ADDRESS"]))
    made = Ticking(population, client, ActivityLog(redis, _KEY), expiring)
    try:
        yield made
    finally:
        for workspace in made.woken:
            with suppress(RPCError):
                await client.get_workflow_handle(workflow_id(workspace)).terminate("the benchmark is over")
        await redis.delete(_KEY)
        await redis.aclose()


@dataclass(frozen=True)
class _Timed:
    """Whatever it stands for, and how long its calls took."""

    target: object
    spent: dict[str, float]
    """Milliseconds, by the name of the call."""

    def __getattr__(self, name: str) -> object:
        found = getattr(self.target, name)
        if not callable(found):
            return found

        async def timed(*arguments: object) -> object:
            began = time.monotonic()
            answer = await cast("Callable[..., Awaitable[object]]", found)(*arguments)
            self.spent[name] += (time.monotonic() - began) * 1000
            return answer

        return timed
