"""The application: routers, error answers, and the middleware around them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import structlog
from fastapi import APIRouter, FastAPI

from adapters.postgres.idempotency import prune_idempotency_keys
from adapters.tasks import end
from adapters.telemetry.metrics import SKIPPED
from starter.api import (
    admin,
    admin_workspaces,
    audit,
    events,
    explain,
    health,
    installation,
    nodes,
    session,
    tokens,
    users,
    workspaces,
)
from starter.api.body_limit import BodyLimitMiddleware
from starter.api.dependencies import Dependencies
from starter.api.errors import add_error_handlers
from starter.api.forwarded import ForwardedMiddleware
from starter.api.openapi import use_true_openapi
from starter.api.request_log import RequestLogMiddleware
from starter.api.same_origin import SameOriginMiddleware
from starter.web import dashboard

log = structlog.get_logger()

_ROUTERS = (
    session.router,
    workspaces.router,
    explain.router,
    events.router,
    users.router,
    tokens.router,
    installation.router,
    admin.router,
    admin_workspaces.router,
    audit.router,
    nodes.router,
    health.router,
)
_PRUNE_SECONDS = 600.0
_DRAIN_SECONDS = 1.0


def create_app(deps: Dependencies, routers: Sequence[APIRouter] = ()) -> FastAPI:
    """`routers` are those of other parts of the starter: metrics."""
    app = FastAPI(
        title="codehub",
        version="1",
        description="Workspaces that follow a declared state. Every error is `{error: {code, message}}`.",
        openapi_url="/api/openapi.json",
        # Their pages load from other hosts.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # Spans would carry request bodies, passwords among them.
        telemetry={"tracing": False, "metrics": False, "logs": False},
        lifespan=_lifespan,
    )
    app.state.dependencies = deps
    add_error_handlers(app)
    for router in (*_ROUTERS, dashboard(), *routers):
        app.include_router(router)
    use_true_openapi(app)
    # The last added is the first to see a request.
    app.add_middleware(BodyLimitMiddleware)
    app.add_middleware(SameOriginMiddleware)
    app.add_middleware(RequestLogMiddleware)
    app.add_middleware(ForwardedMiddleware, trusted=deps.config.trusted_proxies)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    deps: Dependencies = app.state.dependencies
    pruning = asyncio.create_task(
        _prune_forever(
            deps.sessions.prune,
            deps.logins.lockout.prune,
            lambda: prune_idempotency_keys(deps.database),
            deps.audit.prune,
        )
    )
    tasks = [pruning]
    if deps.hub is not None:
        tasks.append(asyncio.create_task(deps.hub.run()))
    try:
        yield
    finally:
        await end(tasks)
        await deps.wakes.drain(_DRAIN_SECONDS)


async def _prune_forever(*prunes: Callable[[], Awaitable[None]]) -> None:
    while True:
        for prune in prunes:
            try:
                await prune()
            except Exception as error:  # noqa: BLE001 - the next time will do
                SKIPPED.labels("prune").inc()
                log.warning("prune_failed", error=str(error))
        await asyncio.sleep(_PRUNE_SECONDS)
