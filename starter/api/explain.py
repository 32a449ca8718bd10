"""`GET /api/v1/workspaces/{id}/explain`, and `GET /api/v1/explain` of all: why they are where they are, what comes."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Annotated
from uuid import UUID

import structlog
from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from adapters.postgres.catalog import Entry
from adapters.redis.activity import RedisUnavailable
from adapters.redis.activity_kinds import KindLog
from domain.audit import Change
from domain.explain import LastActivity, explain
from domain.model import DesiredState, ErrorReason, Operation, Phase, UserId, WorkspaceId
from domain.recovering import recovering
from starter.api.authentication import Current
from starter.api.change_body import CauseBody
from starter.api.dependencies import Dependencies, Deps
from starter.api.errors import answers
from starter.api.fields import PageQuery
from starter.api.one_workspace import workspace_id_of

log = structlog.get_logger()

router = APIRouter(prefix="/api/v1", tags=["workspaces"])


class NextStepBody(BaseModel):
    desired_state: DesiredState | None
    at: datetime
    error_reason: ErrorReason | None
    """In place of a desired_state: the operation under way is given up, unless it is done by then."""


class LastActivityBody(BaseModel):
    at: datetime
    kind: str | None


class RecoveringBody(BaseModel):
    goes_on: str = Field(description="With what: the volume that is there again, the last archive, or an empty home.")
    gives_up: str | None = Field(description="Null: nothing that is known of.")


class ExplainBody(BaseModel):
    phase: Phase
    desired_state: DesiredState
    operation: Operation
    error_reason: ErrorReason | None
    because: str
    waiting_for: str | None
    what_to_do: str | None
    recovering: RecoveringBody | None = Field(description="For whoever recovers it, where that accepts a loss.")
    next_step: NextStepBody | None
    """What happens by itself, at the earliest then, unless the workspace is used or the operation is done."""
    last_activity: LastActivityBody | None
    last_change: CauseBody | None
    """Who last changed it, and why."""


class ExplainedWorkspace(ExplainBody):
    id: UUID


class ExplainPage(BaseModel):
    items: list[ExplainedWorkspace]
    total: int


@router.get("/workspaces/{workspace_id}/explain", responses=answers(401, 404))
async def explain_workspace(workspace_id: UUID, deps: Deps, current: Current) -> ExplainBody:
    """In words and fields: why it is in this phase, what it waits for, and the next automatic step."""
    return await explained(deps, workspace_id_of(workspace_id), current.user.id)


@router.get("/explain", responses=answers(401, 422))
async def explain_workspaces(query: Annotated[PageQuery, Query()], deps: Deps, current: Current) -> ExplainPage:
    """The same of all workspaces, in the order of the list."""
    page = await deps.catalog.page(current.user.id, limit=query.limit, offset=query.offset)
    found = {entry.workspace.id: entry for entry in page.items}
    activity = await _activity(deps, list(found))
    changes = await deps.audit.last(list(found))
    archived = await _archived_at(deps, page.items)
    told = {id_: _told(entry, deps, activity.get(id_), changes.get(id_), archived) for id_, entry in found.items()}
    items = [ExplainedWorkspace.model_validate({"id": id_, **fields}) for id_, fields in told.items()]
    return ExplainPage(items=items, total=page.total)


async def explained(deps: Dependencies, workspace_id: WorkspaceId, owner: UserId | None) -> ExplainBody:
    """`owner` is whose it has to be; None: anybody's."""
    entry = await deps.catalog.get(workspace_id, owner)
    id_ = entry.workspace.id
    activity = await _activity(deps, [id_])
    changes = await deps.audit.last([id_])
    archived = await _archived_at(deps, [entry])
    return ExplainBody.model_validate(_told(entry, deps, activity.get(id_), changes.get(id_), archived))


def _told(
    entry: Entry,
    deps: Dependencies,
    activity: LastActivity | None,
    change: Change | None,
    archived: Mapping[str, datetime],
) -> dict[str, object]:
    ws, config = entry.workspace, deps.config
    told = explain(
        ws,
        config.ttl,
        activity,
        config.max_retries,
        config.timeouts,
        waits=entry.waits,
        archived_at=archived.get(ws.archive_key or ""),
    )
    step, last = told.next_step, told.last_activity
    return {
        "phase": ws.phase,
        "desired_state": ws.desired_state,
        "operation": ws.operation,
        "error_reason": ws.error_reason,
        "because": told.because,
        "waiting_for": told.waiting_for,
        "what_to_do": told.what_to_do,
        "recovering": asdict(told.recovering) if told.recovering else None,
        "next_step": asdict(step) if step else None,
        "last_activity": {"at": last.at, "kind": last.kind} if last else None,
        "last_change": CauseBody.of(change, ws.phase) if change else None,
    }


async def _archived_at(deps: Dependencies, entries: Sequence[Entry]) -> Mapping[str, datetime]:
    """Only of those where it is told."""
    lost = [entry.workspace for entry in entries if recovering(entry.workspace)]
    return await deps.catalog.archived_at([ws.archive_key for ws in lost if ws.archive_key])


async def _activity(deps: Dependencies, workspaces: Sequence[WorkspaceId]) -> Mapping[WorkspaceId, LastActivity]:
    """What has not reached the rows yet. Without Redis, the rows have to do."""
    if deps.activity is None or not workspaces:
        return {}
    try:
        seen = await deps.activity.last_seen_of(workspaces)
        kinds = await KindLog(deps.activity.redis).last_of(workspaces)
    except RedisUnavailable as error:
        log.warning("activity_unknown", error=str(error))
        return {}
    latest = {workspace_id: LastActivity(at) for workspace_id, at in seen.items()}
    for workspace_id, one in kinds.items():
        if workspace_id not in seen or one.at >= seen[workspace_id]:
            latest[workspace_id] = LastActivity(one.at, one.kind)
    return latest
