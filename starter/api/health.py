"""`/health`: is this process alive, can it do its work, and who coordinates. Tells no addresses to strangers."""

import asyncio
from collections.abc import Mapping
from datetime import datetime

import structlog
from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from adapters.postgres.lock import current_holder
from starter.api.dependencies import Check, Deps
from starter.api.errors import ErrorBody, ErrorDetail, answers

log = structlog.get_logger()

router = APIRouter(prefix="/health", tags=["health"])

COORDINATOR_LOCK = "coordinator"


class Live(BaseModel):
    live: bool = True


class Part(BaseModel):
    ready: bool
    message: str | None = None


class Ready(BaseModel):
    ready: bool = True
    parts: dict[str, Part]


class NotReady(ErrorBody):
    parts: dict[str, Part]


class LeaderBody(BaseModel):
    holder_id: str
    since: datetime
    alive: bool


class Coordinator(BaseModel):
    """Of the worker that leads now: `node_id` is its COORDINATOR_NODE_ID, `uptime_seconds` how long it has led.
    `leader` took the lock last, and may be gone."""

    is_leader: bool
    node_id: str | None
    uptime_seconds: float
    leader: LeaderBody | None


@router.get("/live")
async def live() -> Live:
    return Live()


@router.get("/ready", responses={503: {"model": NotReady, "description": "Some part does not answer"}})
async def ready(deps: Deps) -> Ready:
    """Asks every part at once, and waits only so long."""
    checks: dict[str, Check] = {"postgresql": lambda: deps.database.fetchval("SELECT 1"), **deps.checks}
    parts = await ask_all(checks, deps.config.check_deadline)
    missing = [f"{name} {part.message}" for name, part in parts.items() if not part.ready]
    if missing:
        error = ErrorDetail(code="not_ready", message="; ".join(missing))
        body = NotReady(error=error, parts=parts)
        return JSONResponse(body.model_dump(mode="json"), status_code=503, headers={"Retry-After": "2"})  # type: ignore[return-value]
    return Ready(parts=parts)


@router.get("/coordinator", responses=answers())
async def coordinator(deps: Deps) -> Coordinator:
    """Workers elect the leader. Each tells of itself at its METRICS_PORT; this is who leads, as the lock has it."""
    holder = await current_holder(deps.database, COORDINATOR_LOCK, deps.config.coordinator_lock_id)
    leads = holder is not None and holder.alive
    return Coordinator(
        is_leader=leads,
        node_id=holder.holder_id if holder and leads else None,
        uptime_seconds=round(holder.seconds, 3) if holder and leads else 0.0,
        leader=LeaderBody(holder_id=holder.holder_id, since=holder.acquired_at, alive=holder.alive) if holder else None,
    )


async def ask_all(checks: Mapping[str, Check], deadline: float) -> dict[str, Part]:
    found = await asyncio.gather(*(_ask(name, check, deadline) for name, check in checks.items()))
    return dict(zip(checks, found, strict=True))


async def _ask(name: str, check: Check, deadline: float) -> Part:
    try:
        async with asyncio.timeout(deadline):
            await check()
    except TimeoutError:
        return Part(ready=False, message=f"did not answer within {deadline:g} s")
    except Exception as error:  # noqa: BLE001 - whatever it is, this part is not ready
        log.warning("not_ready", part=name, error=str(error))
        return Part(ready=False, message="does not answer")
    return Part(ready=True)
