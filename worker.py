"""The worker: runs the workflows, the operations of its node, and stands for election as coordinator."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version
from typing import Any

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from activities.archive import Archiving
from activities.attempt import Actuator
from activities.gc import GarbageCollector
from activities.operate import Operator
from activities.progress import ProgressEvents
from activities.reconcile import Pace, Reconciler
from activities.resources import ResourceActuators
from activities.restore import Restoring
from activities.transfer import Transfers
from activities.ttl import TtlRunner
from adapters.archive_store import ArchiveStore
from adapters.docker.config import DockerConfig, Limits
from adapters.docker.runtime import DockerRuntime
from adapters.homes import Homes
from adapters.postgres.attention import Attention
from adapters.postgres.database import Database, DatabaseUnavailable, open_database
from adapters.postgres.garbage import Garbage
from adapters.postgres.installation import installation_id
from adapters.postgres.ttl import Expiry
from adapters.postgres.workspaces import WorkspaceStore
from adapters.redis.activity import ActivityLog
from adapters.redis.events import EventBus
from adapters.runtime import Runtime
from adapters.s3.client import S3Config
from adapters.s3.store import open_store
from coordinator.census import Census
from coordinator.leader import Leader
from coordinator.listener import EventListener
from coordinator.observer import Observer
from coordinator.publisher import Publisher
from coordinator.wakes import Wakes
from domain.model import Operation
from settings import Settings, required
from starter.lookouts import Lookout, looking_out, until_stopped
from starter.patience import Patience, Stopped, address_of
from workflows.client import TemporalAddress, Waker, connect
from workflows.gc import GcWorkflow
from workflows.messages import TASK_QUEUE
from workflows.namespace import ensure_search_attributes
from workflows.schedules import ensure_gc, ensure_ttl
from workflows.ttl import TtlWorkflow
from workflows.workspace import WorkspaceWorkflow

log = structlog.get_logger()

DEFAULT_NODE = "local"


@dataclass(frozen=True, slots=True)
class Parts:
    """What a worker is made of, so that a test can put other parts in."""

    settings: Settings
    client: Client
    database: Database
    database_url: str
    runtime: Runtime
    operator: Operator
    bus: EventBus
    node: str = DEFAULT_NODE
    task_queue: str = TASK_QUEUE
    activities: tuple[Callable[..., Any], ...] = ()
    """Beyond the workspaces' own."""
    lookouts: tuple[asyncio.Task[None], ...] = ()


async def run_worker(settings: Settings, node: str = DEFAULT_NODE) -> None:
    """Run until SIGTERM or SIGINT, then drain: operations under way finish or go to another worker."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        async with open_parts(settings, node, Patience(stop)) as parts, running(parts):
            log.info("worker_ready", node=node)
            await until_stopped(stop, parts.lookouts)
            log.info("worker_draining", seconds=settings.worker_drain_seconds)
    except Stopped:
        log.info("worker_stopped_before_it_was_ready")


@asynccontextmanager
async def open_parts(
    settings: Settings, node: str = DEFAULT_NODE, patience: Patience | None = None
) -> AsyncIterator[Parts]:
    """Waits for PostgreSQL and Temporal, without which nothing can be done. The others may come later: what needs
    them waits for them by itself, and the lookouts say so meanwhile."""
    required(settings, "database_url", "temporal_address", "s3_endpoint", "redis_url")
    patience = patience or Patience()
    database_url = settings.database_url or ""
    await patience.migrated(database_url)
    async with AsyncExitStack() as stack:
        database = await open_database(database_url, max_size=settings.database_pool_size)
        stack.push_async_callback(database.close)
        redis: Redis = Redis.from_url(settings.redis_url or "")
        stack.push_async_callback(redis.aclose)
        client = await _temporal(settings, patience)
        installation = await patience.until_there(
            "PostgreSQL", address_of(database_url), lambda: installation_id(database), DatabaseUnavailable
        )
        runtime = DockerRuntime(docker_config(settings, installation))
        stack.push_async_callback(runtime.close)
        archives = await stack.enter_async_context(open_store(s3_config(settings)))
        lookouts = await stack.enter_async_context(
            looking_out(
                patience,
                Lookout("S3", "S3_ENDPOINT", settings.s3_endpoint or "", archives.ensure_bucket),
                Lookout("Docker", "DOCKER_HOST", runtime.where, runtime.ping),
                Lookout("Redis", "REDIS_URL", address_of(settings.redis_url or ""), redis.ping, (RedisError, OSError)),
            )
        )
        bus = EventBus(redis, settings.redis_channel_sse_prefix)
        reconciler = Reconciler(WorkspaceStore(database), runtime, archives, node, settings.timeouts, pace(settings))
        transfers = Transfers(
            reconciler.store,
            asyncio.Semaphore(settings.archive_max_transfers),
            ProgressEvents(bus).publish,
            stall_seconds=settings.archive_stall_seconds,
        )
        operator = Operator(
            reconciler,
            actuators(runtime, runtime.homes(), archives, transfers),
            timedelta(seconds=settings.reconciler_retry_backoff),
            settings.reconciler_max_retries,
            timedelta(seconds=settings.reconciler_patience),
        )
        collector = garbage_collector(settings, database, archives, installation)
        ttl = TtlRunner(Expiry(database, settings.ttl), ActivityLog(redis), Waker(client))
        yield Parts(
            settings,
            client,
            database,
            database_url,
            runtime,
            operator,
            bus,
            node,
            activities=(collector.collect, ttl.tick),
            lookouts=tuple(lookouts),
        )


async def _temporal(settings: Settings, patience: Patience) -> Client:
    """Connected, and the namespace has what workflows need."""

    async def ask() -> Client:
        client = await connect(temporal_address(settings))
        await ensure_search_attributes(client)
        await ensure_gc(client, timedelta(seconds=settings.gc_interval))
        await ensure_ttl(client, timedelta(seconds=settings.ttl_interval))
        return client

    where = f"{settings.temporal_address} (namespace {settings.temporal_namespace})"
    return await patience.until_there("Temporal", where, ask, RuntimeError, RPCError)


def garbage_collector(
    settings: Settings, database: Database, archives: ArchiveStore, installation: str
) -> GarbageCollector:
    return GarbageCollector(
        Garbage(database),
        archives,
        installation,
        timedelta(seconds=settings.gc_delay),
        timedelta(seconds=settings.gc_restored_delay),
    )


def actuators(
    runtime: Runtime, homes: Homes, archives: ArchiveStore, transfers: Transfers
) -> Mapping[Operation, Actuator]:
    """Every operation, and what does it."""
    archiving = Archiving(homes, runtime, archives, transfers)
    return {
        **ResourceActuators(runtime).by_operation(),
        Operation.ARCHIVING: archiving.archive,
        Operation.CREATE_EMPTY_ARCHIVE: archiving.create_empty,
        Operation.RESTORING: Restoring(homes, runtime, archives, transfers).restore,
    }


@asynccontextmanager
async def running(parts: Parts, *, elect: bool = True) -> AsyncIterator[None]:
    """Worker and coordinator; on leaving, the worker drains before anything it needs is closed."""
    tasks = [asyncio.create_task(coordinator(parts).run(), name="coordinator")] if elect else []
    try:
        async with temporal_worker(parts):
            yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def temporal_worker(parts: Parts) -> Worker:
    settings = parts.settings
    reconciler = parts.operator.reconciler
    return Worker(
        parts.client,
        task_queue=parts.task_queue,
        workflows=[WorkspaceWorkflow, GcWorkflow, TtlWorkflow],
        activities=[reconciler.reconcile, reconciler.fail, *parts.operator.activities(), *parts.activities],
        workflow_runner=SandboxedWorkflowRunner(
            restrictions=SandboxRestrictions.default.with_passthrough_modules("domain", "pydantic", "structlog")
        ),
        max_concurrent_workflow_tasks=settings.worker_max_concurrent_workflow_tasks,
        max_concurrent_activities=settings.worker_max_concurrent_activities,
        max_concurrent_local_activities=settings.worker_max_concurrent_activities,
        max_cached_workflows=settings.worker_max_cached_workflows,
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=settings.worker_sticky_timeout),
        graceful_shutdown_timeout=timedelta(seconds=settings.worker_drain_seconds),
        # Without one, the SDK hashes every loaded module: seconds, at each start.
        build_id=f"codehub-{version('codehub')}",
    )


def coordinator(parts: Parts) -> Leader:
    settings = parts.settings
    attention = Attention(parts.database)
    waker = Waker(parts.client, parts.task_queue)
    observer = Observer(
        parts.node,
        attention,
        parts.runtime,
        waker,
        interval=settings.coordinator_idle_interval,
        timeouts=settings.timeouts,
    )
    return Leader(
        parts.database_url,
        settings.coordinator_node_id,
        {
            "listener": EventListener(parts.database_url, Wakes(attention, waker), Publisher(parts.bus)).run,
            "events": observer.follow_events,
            "sweep": observer.sweep_forever,
            "census": Census(attention, parts.client, waker).run,
        },
        lock_id=settings.coordinator_lock_id,
        retry_interval=settings.coordinator_retry_interval,
    )


def temporal_address(settings: Settings) -> TemporalAddress:
    key = settings.temporal_api_key
    return TemporalAddress(
        settings.temporal_address or "",
        settings.temporal_namespace,
        settings.temporal_tls,
        key.get_secret_value() if key else None,
    )


def docker_config(settings: Settings, installation: str) -> DockerConfig:
    return DockerConfig(
        docker_host=settings.docker_host,
        installation=installation,
        workspace_port=settings.workspace_port,
        workspace_home=settings.workspace_home,
        stop_grace_seconds=settings.stop_grace_seconds,
        limits=Limits(settings.workspace_memory_mb * 1024**2, settings.workspace_cpus, settings.workspace_pids),
    )


def s3_config(settings: Settings) -> S3Config:
    return S3Config(
        endpoint=settings.s3_endpoint or "",
        access_key=settings.s3_access_key,
        secret_key=settings.s3_secret_key.get_secret_value(),
        bucket=settings.s3_bucket,
        region=settings.s3_region,
    )


def pace(settings: Settings) -> Pace:
    return Pace(
        active=timedelta(seconds=settings.coordinator_active_interval),
        active_duration=timedelta(seconds=settings.coordinator_active_duration),
        idle=timedelta(seconds=settings.coordinator_idle_interval),
        safety=timedelta(seconds=settings.coordinator_safety_interval),
    )
