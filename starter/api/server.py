"""The API process, proxy included: opens what it needs, serves until told to stop, and stops within five seconds."""

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import structlog
import uvicorn
from redis.asyncio import Redis
from temporalio.client import Client
from temporalio.runtime import Runtime

from adapters.postgres.database import Database, DatabaseUnavailable, open_database
from adapters.redis.events import EventBus
from adapters.telemetry.metrics import PROXY_WEBSOCKETS, SSE_CLIENTS, shown_by
from domain.hosts import Hosts
from settings import Settings, SettingsError, required
from starter.api.app import create_app
from starter.api.dependencies import ApiConfig, Check, Dependencies, assemble
from starter.api.forwarded import TrustedProxies
from starter.api.logins import ensure_admin
from starter.api.metrics import metrics_router
from starter.api.passwords import Passwords
from starter.metrics import fetched, serving_metrics
from starter.patience import Patience, Stopped, address_of
from starter.proxy.proxy import Proxy
from starter.proxy.tunnel import Tunnel
from starter.s3 import s3_config, store_check
from starter.temporal import temporal_address
from workflows.client import Waker, connect
from workflows.measured import measured_runtime

log = structlog.get_logger()

# What is left of the five seconds drains wakes, reports the last activity and closes the pool.
_GRACEFUL_SECONDS = 2
_CLOSE_SECONDS = 0.5


def run(settings: Settings) -> None:
    """As `run_api`, on the faster loop where there is one."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(run_api(settings))


async def run_api(settings: Settings) -> None:
    """Until SIGTERM or Ctrl-C."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serve(settings, stop)


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    required(settings, "database_url", "temporal_address")
    try:
        await _serve(settings, stop, Patience(stop))
    except Stopped:
        log.info("api_stopped_before_it_listened")


async def _serve(settings: Settings, stop: asyncio.Event, patience: Patience) -> None:
    await patience.migrated(settings.database_url or "")
    measured = measured_runtime()
    async with opened(settings, measured.runtime) as deps:
        await patience.until_there(
            "PostgreSQL", address_of(settings.database_url or ""), lambda: _admin(settings, deps), DatabaseUnavailable
        )
        listener = listen(settings.codehub_host, settings.codehub_port)
        letting_go = asyncio.create_task(_let_go(deps, stop))
        shown_by(SSE_CLIENTS, lambda: deps.hub.clients if deps.hub else 0)
        proxy = Proxy(
            deps,
            deps.hub.bus if deps.hub is not None else None,
            flush_interval=settings.activity_flush_interval,
            page_timeout=settings.proxy_page_timeout,
            hosts=_hosts(settings),
        )
        shown_by(PROXY_WEBSOCKETS, lambda: sum(isinstance(one, Tunnel) for one in proxy.open))
        try:
            sources = {"temporal": fetched(measured.url)}
            async with proxy.running(), serving_metrics(settings, sources) as exposition:
                app = create_app(deps, [metrics_router(exposition)])
                await serve_app(proxy.around(app), listener, stop, proxy.protocol)
        finally:
            letting_go.cancel()


@asynccontextmanager
async def opened(settings: Settings, runtime: Runtime) -> AsyncIterator[Dependencies]:
    """What the routes work with. Temporal is reached for by the first wake: reads work while it is away."""
    async with AsyncExitStack() as stack:
        database = await open_database(settings.database_url or "", max_size=settings.database_pool_size)
        stack.push_async_callback(_close, database)
        passwords = Passwords()
        stack.callback(passwords.close)
        temporal = await connect(temporal_address(settings), lazy=True, runtime=runtime)
        checks: dict[str, Check] = {"temporal": lambda: _check_temporal(temporal)}
        bus = None
        if settings.redis_url is not None:
            redis: Redis = Redis.from_url(settings.redis_url)
            stack.push_async_callback(redis.aclose)
            checks["redis"] = redis.ping
            bus = EventBus(redis, settings.redis_channel_sse_prefix)
        watched: dict[str, Check] = {}
        if settings.s3_endpoint is not None:
            watched["s3"] = await stack.enter_async_context(store_check(s3_config(settings)))
        yield assemble(_config(settings), database, Waker(temporal), passwords, checks, bus, watched)


def listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise SettingsError(
            f"CODEHUB_HOST={host!r}, CODEHUB_PORT={port!r}: can't listen there ({error.strerror}); "
            "name an address of this machine and a port that no other program uses"
        ) from error


async def serve_app(app: Any, listener: socket.socket, stop: asyncio.Event, protocol: Any = "httptools") -> None:
    """`protocol` is what reads connections: the proxy's serves workspaces itself and gives the rest to `app`."""
    config = uvicorn.Config(
        app,
        http=protocol,
        # The API has none, and those of workspaces are the proxy's.
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        # ForwardedMiddleware does this, and for trusted proxies only.
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=65,
        timeout_graceful_shutdown=_GRACEFUL_SECONDS,
    )
    server = _Server(config)
    log.info("api_listening", address=listener.getsockname())
    stopping = asyncio.create_task(_stop(server, stop))
    try:
        await server.serve([listener])
    finally:
        stopping.cancel()
        log.info("api_stopped")


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        """Signals are the caller's: this may be one part of a larger process."""
        yield


async def _admin(settings: Settings, deps: Dependencies) -> None:
    if settings.codehub_admin_password is not None:
        await ensure_admin(deps.accounts, deps.passwords, settings.codehub_admin_password.get_secret_value())


async def _close(database: Database) -> None:
    """A server that does not answer must not hold up the end."""
    try:
        async with asyncio.timeout(_CLOSE_SECONDS):
            await database.close()
    except TimeoutError:
        database.pool.terminate()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop


async def _let_go(deps: Dependencies, stop: asyncio.Event) -> None:
    """Live events would go on for ever, and the end would have to wait for them."""
    await stop.wait()
    if deps.hub is not None:
        deps.hub.shut()


async def _stop(server: uvicorn.Server, stop: asyncio.Event) -> None:
    await stop.wait()
    server.should_exit = True


async def _check_temporal(client: Client) -> None:
    if not await client.service_client.check_health(timeout=timedelta(seconds=2)):
        raise ConnectionError("Temporal says that it is not serving")


def _config(settings: Settings) -> ApiConfig:
    return ApiConfig(
        default_image=settings.workspace_image,
        coordinator_lock_id=settings.coordinator_lock_id,
        session_ttl=timedelta(seconds=settings.session_ttl_seconds),
        limits=settings.limits,
        max_retries=settings.reconciler_max_retries,
        ttl=settings.ttl,
        timeouts=settings.timeouts,
        audit_kept=timedelta(days=settings.audit_kept_days),
        node_lost_after=settings.node_lost_after,
        trusted_proxies=TrustedProxies.parse(settings.trusted_proxies),
        temporal_ui_url=_histories(settings),
    )


def _hosts(settings: Settings) -> Hosts | None:
    if settings.workspace_host_pattern is None:
        return None
    # Tickets are good once, whichever process takes them.
    required(settings, "redis_url")
    return Hosts(settings.workspace_host_pattern, settings.codehub_url or "")


def _histories(settings: Settings) -> str | None:
    """Where the Temporal UI lists the workflows of our namespace."""
    if settings.temporal_ui_url is None:
        return None
    return f"{settings.temporal_ui_url.rstrip('/')}/namespaces/{quote(settings.temporal_namespace)}/workflows"
