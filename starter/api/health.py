"""`/health`: is this process alive, can it do its work, and who coordinates. Tells no addresses to strangers."""

import asyncio
import time
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
_STARTED = time.monotonic()


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
    """`is_leader`, `node_id` and `uptime_seconds` are this process's; `leader` took the lock last."""

    is_leader: bool
    node_id: str
    uptime_seconds: float
    leader: LeaderBody | None


@router.get("/live")
async def live() -> Live:
    return Live()


@router.get("/ready", responses={503: {"model": NotReady, "description": "Some part does not answer"}})
async def ready(deps: Deps) -> Ready:
    """Asks every part at once, and waits only so long."""
    checks: dict[str, Check] = {"postgresql": lambda: deps.database.fetchval("SELECT 1"), **deps.checks}
    deadline = deps.config.check_deadline
    found = await asyncio.gather(*(_ask(name, check, deadline) for name, check in checks.items()))
    parts = dict(zip(checks, found, strict=True))
    missing = [f"{name} {part.message}" for name, part in parts.items() if not part.ready]
    if missing:
        error = ErrorDetail(code="not_ready", message="; ".join(missing))
        body = NotReady(error=error, parts=parts)
        return JSONResponse(body.model_dump(mode="json"), status_code=503, headers={"Retry-After": "2"})  # type: ignore[return-value]
    return Ready(parts=parts)


@router.get("/coordinator", responses=answers())
async def coordinator(deps: Deps) -> Coordinator:
    """Workers elect the leader; an API process by itself never is one."""
    holder = await current_holder(deps.database, COORDINATOR_LOCK, deps.config.coordinator_lock_id)
    return Coordinator(
        is_leader=deps.is_leader(),
        node_id=deps.config.node_id,
        uptime_seconds=round(time.monotonic() - _STARTED, 3),
        leader=LeaderBody(holder_id=holder.holder_id, since=holder.acquired_at, alive=holder.alive) if holder else None,
    )


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
