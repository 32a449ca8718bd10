"""The worker: runs the workflows, the operations of its node, and stands for election as coordinator."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError
from temporalio.client import Client
from temporalio.runtime import Runtime as TemporalRuntime
from temporalio.service import RPCError

from activities.archive import Archiving
from activities.attempt import Actuator
from activities.bucket import Bucket
from activities.gc import GarbageCollector
from activities.operate import Operator
from activities.places import transfer_places
from activities.progress import ProgressEvents
from activities.reconcile import Pace, Reconciler
from activities.resources import ResourceActuators
from activities.restore import Restoring
from activities.transfer import Transfers
from activities.ttl import TtlRunner
from adapters.archive_store import ArchiveStore
from adapters.docker.config import LINK_LOCAL, DockerConfig, Limits
from adapters.docker.runtime import DockerRuntime
from adapters.homes import Homes
from adapters.postgres.database import Database, DatabaseUnavailable, open_database
from adapters.postgres.garbage import Garbage
from adapters.postgres.installation import installation_id
from adapters.postgres.nodes import Nodes
from adapters.postgres.ttl import Expiry
from adapters.postgres.workspaces import WorkspaceStore
from adapters.redis.activity import ActivityLog
from adapters.redis.events import EventBus
from adapters.runtime import Runtime
from adapters.s3.store import open_store
from adapters.tasks import end
from adapters.telemetry.fleet import FleetMetrics
from adapters.transfer.memory import give_back_large_blocks
from coordinator.heart import Heart, NotThisNode
from coordinator.leader import Leader
from domain.errors import Unreachable
from domain.model import Operation
from domain.naming import DEFAULT_NODE, is_node_name
from settings import Settings, SettingsError, required
from starter.electing import coordinator, observer
from starter.endpoints import neighbours, service_endpoints
from starter.lookouts import Lookout, looking_out, until_stopped
from starter.metrics import Source, fetched, serving_metrics
from starter.patience import Patience, Stopped, address_of
from starter.polling import polling
from starter.s3 import s3_config
from starter.temporal import temporal_address
from workflows.client import connect
from workflows.measured import MeasuredRuntime, measured_runtime
from workflows.messages import TASK_QUEUE
from workflows.namespace import ensure_search_attributes
from workflows.schedules import ensure_gc, ensure_ttl

log = structlog.get_logger()

_BEATS_PER_LOSS = 3
_REGISTER_SECONDS = 3.0
_ASIDE = 2
"""Connections: for the heartbeat, and for the leader's look at the nodes."""


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
    aside: Database | None = None
    """Connections for the little that says which nodes live: no number of operations keeps it waiting."""
    heart: Heart | None = None
    """Tells the others that this node lives; None where nobody needs to know."""

    @property
    def watched(self) -> tuple[asyncio.Task[None], ...]:
        """What ends the worker when it fails."""
        beating = self.heart.task if self.heart else None
        return (*self.lookouts, beating) if beating else self.lookouts


async def run_worker(settings: Settings, node: str = DEFAULT_NODE) -> None:
    """Run until SIGTERM or SIGINT, then drain: operations under way finish or go to another worker."""
    if not is_node_name(node):
        raise SettingsError(
            f"--node {node!r} is not right: up to 63 of a-z, 0-9 and '-', beginning with one of a-z, 0-9"
        )
    give_back_large_blocks()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        measured = measured_runtime() if settings.metrics_port is not None else None
        async with (
            open_parts(settings, node, Patience(stop), measured) as parts,
            running(parts) as leader,
            serving_metrics(
                settings, _metrics(parts, leader, measured), {"coordinator": leader.told} if leader else None
            ),
        ):
            log.info("worker_ready", node=node)
            await until_stopped(stop, parts.watched)
            log.info("worker_draining", seconds=settings.worker_drain_seconds)
    except Stopped:
        log.info("worker_stopped_before_it_was_ready")
    except NotThisNode as error:
        raise SettingsError(f"DOCKER_HOST: {error}") from error


def _metrics(parts: Parts, leader: Leader | None, measured: MeasuredRuntime | None) -> Mapping[str, Source]:
    sources: dict[str, Source] = {}
    if leader is not None:
        sources["fleet"] = FleetMetrics(parts.database, lambda: leader.is_leader).render
    if measured is not None:
        sources["temporal"] = fetched(measured.url)
    return sources


@asynccontextmanager
async def open_parts(
    settings: Settings,
    node: str = DEFAULT_NODE,
    patience: Patience | None = None,
    measured: MeasuredRuntime | None = None,
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
        aside = await open_database(database_url, max_size=_ASIDE)
        stack.push_async_callback(aside.close)
        redis: Redis = Redis.from_url(settings.redis_url or "")
        stack.push_async_callback(redis.aclose)
        client = await _temporal(settings, patience, measured.runtime if measured else None)
        installation = await patience.until_there(
            "PostgreSQL", address_of(database_url), lambda: installation_id(database), DatabaseUnavailable
        )
        nodes = Nodes(aside, settings.node_lost_after)
        runtime = DockerRuntime(docker_config(settings, installation, node), neighbours(nodes))
        stack.push_async_callback(runtime.close)
        heart = Heart(
            nodes,
            runtime,
            node,
            settings.node_address,
            settings.node_capacity or None,
            settings.node_lost_seconds / _BEATS_PER_LOSS,
        )
        archives = await stack.enter_async_context(open_store(s3_config(settings)))
        bucket = Bucket(archives, installation)

        async def claimed() -> None:
            await archives.ensure_bucket()
            await bucket.take()

        lookouts = await stack.enter_async_context(
            looking_out(
                patience,
                Lookout("Docker", "DOCKER_HOST", runtime.where, heart.register, (Unreachable, DatabaseUnavailable)),
                Lookout("S3", "S3_ENDPOINT", settings.s3_endpoint or "", claimed),
                Lookout("Redis", "REDIS_URL", address_of(settings.redis_url or ""), redis.ping, (RedisError, OSError)),
            )
        )
        # An engine that is another one than this node's would show no home at all: it is looked at before it is used.
        await asyncio.wait(lookouts[:1], timeout=_REGISTER_SECONDS)
        if lookouts[0].done():
            lookouts[0].result()
        bus = EventBus(redis, settings.redis_channel_sse_prefix)
        reconciler = Reconciler(
            WorkspaceStore(database),
            runtime,
            archives,
            node,
            settings.timeouts,
            pace(settings),
            settings.reconciler_max_retries,
        )
        progress = ProgressEvents(bus)
        stack.push_async_callback(progress.close)
        transfers = Transfers(
            reconciler.store,
            progress.publish,
            stall_seconds=settings.archive_stall_seconds,
        )
        operator = Operator(
            reconciler,
            actuators(runtime, runtime.homes(), bucket, transfers),
            timedelta(seconds=settings.reconciler_retry_backoff),
            timedelta(seconds=settings.reconciler_patience),
            transfer_places(settings.archive_max_transfers),
        )
        collector = garbage_collector(settings, database, archives, installation)
        ttl = TtlRunner(Expiry(database, settings.ttl), ActivityLog(redis))
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
            aside=aside,
            heart=heart,
        )


async def _temporal(settings: Settings, patience: Patience, runtime: TemporalRuntime | None) -> Client:
    """Connected, and the namespace has what workflows need."""

    async def ask() -> Client:
        client = await connect(temporal_address(settings), runtime=runtime)
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


def actuators(runtime: Runtime, homes: Homes, bucket: Bucket, transfers: Transfers) -> Mapping[Operation, Actuator]:
    """Every operation, and what does it."""
    archiving = Archiving(homes, bucket, transfers)
    return {
        **ResourceActuators(runtime, transfers.fence, transfers.store.ports_of_others).by_operation(),
        Operation.ARCHIVING: archiving.archive,
        Operation.CREATE_EMPTY_ARCHIVE: archiving.create_empty,
        Operation.RESTORING: Restoring(homes, runtime, bucket.archives, transfers).restore,
    }


@asynccontextmanager
async def running(parts: Parts, *, elect: bool = True) -> AsyncIterator[Leader | None]:
    """Worker and coordinator; on leaving, the worker drains before anything it needs is closed."""
    leader = coordinator(parts) if elect else None
    node_leader, observing = observer(parts)
    tasks = [asyncio.create_task(each.run(), name=each.lock_name) for each in (leader, node_leader) if elect and each]
    if parts.heart is not None:
        parts.heart.swept_at = lambda: observing.swept_at
        tasks.append(parts.heart.start())
    try:
        async with polling(parts):
            yield leader
    finally:
        await end(tasks)


def docker_config(settings: Settings, installation: str, node: str = DEFAULT_NODE) -> DockerConfig:
    return DockerConfig(
        publish_host=settings.node_address,
        # Several engines on one machine share its bridges: theirs must not have the same name.
        network_name=None if node == DEFAULT_NODE else f"codehub-{installation}-{node}",
        engines_network=settings.workspace_network == "engine",
        marker=f"codehub-{installation}-{node}",
        docker_host=settings.docker_host,
        blocked_networks=(LINK_LOCAL, *settings.blocked_networks),
        services=service_endpoints(settings),
        installation=installation,
        workspace_port=settings.workspace_port,
        workspace_home=settings.workspace_home,
        stop_grace_seconds=settings.stop_grace_seconds,
        limits=Limits(settings.workspace_memory_mb * 1024**2, settings.workspace_cpus, settings.workspace_pids),
    )


def pace(settings: Settings) -> Pace:
    return Pace(
        active=timedelta(seconds=settings.coordinator_active_interval),
        active_duration=timedelta(seconds=settings.coordinator_active_duration),
        idle=timedelta(seconds=settings.coordinator_idle_interval),
        safety=timedelta(seconds=settings.coordinator_safety_interval),
    )
