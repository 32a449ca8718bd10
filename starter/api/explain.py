"""`GET /api/v1/workspaces/{id}/explain`: why it is where it is, and what happens next."""

from datetime import datetime
from uuid import UUID

import structlog
from fastapi import APIRouter
from pydantic import BaseModel

from adapters.redis.activity import RedisUnavailable
from domain.explain import LastActivity, explain
from domain.model import DesiredState, ErrorReason, Operation, Phase, WorkspaceId
from starter.api.authentication import Current
from starter.api.dependencies import Dependencies, Deps
from starter.api.errors import answers

log = structlog.get_logger()

router = APIRouter(prefix="/api/v1/workspaces", tags=["workspaces"])


class NextStepBody(BaseModel):
    desired_state: DesiredState
    at: datetime


class LastActivityBody(BaseModel):
    at: datetime
    kind: str | None


class ExplainBody(BaseModel):
    phase: Phase
    desired_state: DesiredState
    operation: Operation
    error_reason: ErrorReason | None
    because: str
    waiting_for: str | None
    what_to_do: str | None
    next_step: NextStepBody | None
    """What happens by itself, at the earliest then, unless the workspace is used."""
    last_activity: LastActivityBody | None


@router.get("/{workspace_id}/explain", responses=answers(401, 404))
async def explain_workspace(workspace_id: UUID, deps: Deps, current: Current) -> ExplainBody:
    """In words and fields: why it is in this phase, what it waits for, and the next automatic step."""
    ws = (await deps.catalog.get(WorkspaceId(str(workspace_id)), current.user.id)).workspace
    told = explain(ws, deps.config.ttl, await _activity(deps, ws.id))
    return ExplainBody.model_validate(
        {
            "phase": ws.phase,
            "desired_state": ws.desired_state,
            "operation": ws.operation,
            "error_reason": ws.error_reason,
            **{name: getattr(told, name) for name in ("because", "waiting_for", "what_to_do")},
            "next_step": told.next_step,
            "last_activity": told.last_activity,
        },
        from_attributes=True,
    )


async def _activity(deps: Dependencies, workspace_id: WorkspaceId) -> LastActivity | None:
    """What has not reached the row yet. Without Redis, the row has to do."""
    if deps.activity is None:
        return None
    try:
        seen = await deps.activity.last_seen(workspace_id)
    except RedisUnavailable as error:
        log.warning("activity_unknown", error=str(error))
        return None
    return LastActivity(seen) if seen else None
