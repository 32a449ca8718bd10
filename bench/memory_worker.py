"""`python -m bench.memory_worker`: a worker as any other, but its engine is a dict and costs nothing.

It notes in Redis when each operation began.
"""

import asyncio
import os
import signal
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import timedelta

from redis.asyncio import Redis

from activities.attempt import Actuator, Attempt
from activities.bucket import Bucket
from activities.operate import Operator
from activities.reconcile import Reconciler
from activities.transfer import Transfers
from activities.ttl import TtlRunner
from adapters.memory import MemoryHomes, MemoryRuntime
from adapters.postgres.database import Database, open_database
from adapters.postgres.installation import installation_id
from adapters.postgres.migrate import migrate
from adapters.postgres.ttl import Expiry
from adapters.postgres.workspaces import WorkspaceStore
from adapters.redis.activity import ActivityLog
from adapters.redis.events import EventBus
from adapters.s3.store import open_store
from domain.model import Operation, OperationId, WorkspaceId
from settings import load_settings, required
from starter.logs import configure_logs
from starter.s3 import s3_config
from starter.temporal import temporal_address
from worker import Parts, actuators, pace, running
from workflows.client import connect
from workflows.schedules import ensure_ttl

STARTED = "bench:started"


async def main() -> None:
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
        runtime = await remembered(database)
        store = WorkspaceStore(database)
        reconciler = Reconciler(store, runtime, archives, timeouts=settings.timeouts, pace=pace(settings))
        transfers = Transfers(store)
        bucket = Bucket(archives, await installation_id(database))
        noted = _noted(actuators(runtime, MemoryHomes(runtime), bucket, transfers), redis)
        operator = Operator(reconciler, noted, timedelta(seconds=settings.reconciler_retry_backoff))
        ttl = TtlRunner(Expiry(database, settings.ttl), ActivityLog(redis))
        parts = Parts(
            settings, client, database, database_url, runtime, operator, EventBus(redis), activities=(ttl.tick,)
        )
        async with running(parts):
            await stop.wait()


async def remembered(database: Database) -> MemoryRuntime:
    """An engine that holds what the rows say: it outlives its process, as a real one does."""
    runtime, noone = MemoryRuntime(), OperationId("")
    for row in await database.fetch("SELECT id, phase FROM workspaces WHERE phase IN ('RUNNING', 'STANDBY')"):
        workspace = WorkspaceId(str(row["id"]))
        await runtime.create_volume(workspace, noone)
        if row["phase"] == "RUNNING":
            await runtime.start(workspace, "none", noone)
    return runtime


def _noted(by_operation: Mapping[Operation, Actuator], redis: Redis) -> Mapping[Operation, Actuator]:
    def noting(act: Actuator) -> Actuator:
        async def noted(attempt: Attempt) -> None:
            began = time.time()
            await act(attempt)
            await redis.hset(STARTED, attempt.workspace.id, str(began))

        return noted

    return {operation: noting(act) for operation, act in by_operation.items()}


if __name__ == "__main__":
    asyncio.run(main())
