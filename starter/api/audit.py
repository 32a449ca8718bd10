"""`/api/v1/audit`: who changed what, when and why. An admin sees everything, an owner what concerns a workspace."""

from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import Field

from domain.audit import ActorKind
from domain.model import WorkspaceId
from starter.api.authentication import Admin, Current
from starter.api.change_body import ChangeBody, ChangePage
from starter.api.dependencies import Deps
from starter.api.errors import answers
from starter.api.fields import PageQuery

router = APIRouter(prefix="/api/v1", tags=["audit"])


class AuditQuery(PageQuery):
    subject: Literal["workspace", "user", "token", "node"] | None = Field(None, description="Only what concerns these.")
    subject_id: UUID | None = Field(None, description="Only what concerns this workspace, user, token or node.")
    actor_kind: ActorKind | None = Field(None, description="Only what this kind of actor did.")


@router.get("/audit", responses=answers(401, 403, 422))
async def list_changes(query: Annotated[AuditQuery, Query()], deps: Deps, _: Admin) -> ChangePage:
    """Latest first, of workspaces, users, tokens and nodes."""
    changes, total = await deps.audit.page(
        limit=query.limit,
        offset=query.offset,
        subject=query.subject,
        subject_id=str(query.subject_id) if query.subject_id else None,
        actor_kind=query.actor_kind,
    )
    return ChangePage(items=[ChangeBody.of(one) for one in changes], total=total)


@router.get("/workspaces/{workspace_id}/audit", responses=answers(401, 404, 422))
async def list_workspace_changes(
    workspace_id: UUID, query: Annotated[PageQuery, Query()], deps: Deps, current: Current
) -> ChangePage:
    """Who changed this workspace, latest first."""
    await deps.catalog.get(WorkspaceId(str(workspace_id)), current.user.id)
    changes, total = await deps.audit.page(limit=query.limit, offset=query.offset, subject_id=str(workspace_id))
    return ChangePage(items=[ChangeBody.of(one) for one in changes], total=total)
