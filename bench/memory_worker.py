"""`python -m bench.memory_worker NODE`: a worker as any other, but its engine is a dict and costs nothing.

It notes in Redis when each operation began.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta

import structlog
from redis.asyncio import Redis

from activities.attempt import Actuator, Attempt
from activities.bucket import Bucket
from activities.operate import Operator
from activities.reconcile import Reconciler
from activities.transfer import Transfers
from activities.ttl import TtlRunner
from adapters.docker.engine import EngineInfo, Identity
from adapters.memory import MemoryHomes, MemoryRuntime
from adapters.postgres.database import Database, open_database
from adapters.postgres.installation import installation_id
from adapters.postgres.migrate import migrate
from adapters.postgres.nodes import Nodes
from adapters.postgres.ttl import Expiry
from adapters.postgres.workspaces import WorkspaceStore
from adapters.redis.activity import ActivityLog
from adapters.redis.events import EventBus
from adapters.s3.store import open_store
from coordinator.heart import Heart
from domain.model import Operation, OperationId, WorkspaceId
from domain.naming import DEFAULT_NODE
from settings import load_settings, required
from starter.logs import configure_logs
from starter.s3 import s3_config
from starter.temporal import temporal_address
from worker import Parts, actuators, pace, running
from workflows.client import connect
from workflows.schedules import ensure_ttl

STARTED = "bench:started"
# By the conditions: a workspace whose node was lost is in ERROR, and its home is where it was.
_SEEN = """
SELECT id, COALESCE(conditions -> 'infra.container_ready' ->> 'status' = 'True', false) AS runs FROM workspaces
WHERE node = $1 AND phase <> 'DELETED' AND conditions -> 'storage.volume_ready' ->> 'status' = 'True'
"""
_BEATS_PER_LOSS = 3

log = structlog.get_logger()


async def main(node: str) -> None:
    settings = load_settings(os.environ)
    required(settings, "database_url", "temporal_address", "s3_endpoint", "redis_url")
    configure_logs(settings)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    database_url = settings.database_url or ""
    await migrate(database_url)
    async with AsyncExitStack() as stack:
        database = await open_database(database_url, max_size=settings.database_pool_size)
        stack.push_async_callback(database.close)
        redis: Redis = Redis.from_url(settings.redis_url or "")
        stack.push_async_callback(redis.aclose)
        archives = await stack.enter_async_context(open_store(s3_config(settings)))
        client = await connect(temporal_address(settings))
        await ensure_ttl(client, timedelta(seconds=settings.ttl_interval))
        runtime = await remembered(database, node)
        beats = settings.node_lost_seconds / _BEATS_PER_LOSS
        heart = Heart(Nodes(database, settings.node_lost_after), _Engine(node), node, interval=beats)
        await heart.register()
        reconciler = Reconciler(WorkspaceStore(database), runtime, archives, node, settings.timeouts, pace(settings))
        transfers = Transfers(reconciler.store)
        bucket = Bucket(archives, await installation_id(database))
        noted = _noted(actuators(runtime, MemoryHomes(runtime), bucket, transfers), redis)
        operator = Operator(reconciler, noted, timedelta(seconds=settings.reconciler_retry_backoff))
        ttl = TtlRunner(Expiry(database, settings.ttl), ActivityLog(redis))
        parts = Parts(
            settings,
            client,
            database,
            database_url,
            runtime,
            operator,
            EventBus(redis),
            node,
            activities=(ttl.tick,),
            heart=heart,
        )
        async with running(parts):
            log.info("worker_ready", node=node)
            await stop.wait()


async def remembered(database: Database, node: str) -> MemoryRuntime:
    """An engine that holds what the rows say was seen on it: it outlives its process, as a real one does."""
    runtime, noone = MemoryRuntime(), OperationId("")
    for row in await database.fetch(_SEEN, node):
        workspace = WorkspaceId(str(row["id"]))
        await runtime.create_volume(workspace, noone)
        if row["runs"]:
            await runtime.start(workspace, "none", noone)
    return runtime


@dataclass(frozen=True)
class _Engine:
    """What a heart has to know of an engine that always answers."""

    node: str

    async def identify(self) -> Identity:
        info = EngineInfo(f"memory-{self.node}", "0", "0", os.cpu_count() or 1, 2**32)
        return Identity(info, marker=f"memory-{self.node}", holds_homes=True)

    def registered(self, marker: str) -> None: ...

    async def confirm(self) -> None: ...


def _noted(by_operation: Mapping[Operation, Actuator], redis: Redis) -> Mapping[Operation, Actuator]:
    def noting(act: Actuator) -> Actuator:
        async def noted(attempt: Attempt) -> None:
            began = time.time()
            await act(attempt)
            await redis.hset(STARTED, attempt.workspace.id, str(began))

        return noted

    return {operation: noting(act) for operation, act in by_operation.items()}


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else DEFAULT_NODE))
