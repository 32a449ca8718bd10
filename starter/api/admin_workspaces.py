"""`/api/v1/admin/workspaces`: everybody's, for the admins who look after them. They see how a workspace is and why,
take it out of ERROR and delete it, by the rules that hold for its owner; to all others there is nothing here. What
people write into theirs, and where they want them to be, stays with them."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from adapters.postgres.catalog import Entry
from adapters.postgres.overview import Overview
from domain.model import ConditionName, DesiredState, ErrorReason, Operation, Phase, UserId
from starter.api import one_workspace
from starter.api.authentication import Admin, AdminOfIt
from starter.api.dependencies import Dependencies, Deps
from starter.api.errors import answers
from starter.api.explain import ExplainBody, explained
from starter.api.fields import PageQuery
from starter.api.one_workspace import workspace_id_of
from starter.api.workspace_body import ConditionBody, OperationPage, ProgressBody, WorkspaceBody, WorkspaceQuery

router = APIRouter(prefix="/api/v1/admin/workspaces", tags=["admin"])

_ANYBODYS = None


class OwnedQuery(WorkspaceQuery):
    owner_user_id: UUID | None = Field(None, description="Only workspaces of this user.")


class OwnedWorkspace(BaseModel):
    """What it takes to look after it. What people write into theirs is theirs."""

    id: UUID
    owner_user_id: UUID
    owner: str = Field(description="The owner's username.")
    name: str
    image_ref: str
    phase: Phase
    operation: Operation
    desired_state: DesiredState
    conditions: dict[ConditionName, ConditionBody]
    archive_key: str | None
    error_reason: ErrorReason | None
    error_count: int
    progress: ProgressBody | None
    standby_ttl_seconds: int | None
    archive_ttl_seconds: int | None
    created_at: datetime
    updated_at: datetime
    last_access_at: datetime | None
    phase_changed_at: datetime
    op_started_at: datetime | None
    node: str | None

    @classmethod
    def of(cls, entry: Entry, owner: str) -> "OwnedWorkspace":
        whole = WorkspaceBody.of(entry)
        shown = {name: getattr(whole, name) for name in cls.model_fields if name in WorkspaceBody.model_fields}
        return cls(owner=owner, **shown)


class OwnedPage(BaseModel):
    items: list[OwnedWorkspace]
    total: int


@router.get("", responses=answers(401, 403, 422))
async def list_all_workspaces(query: Annotated[OwnedQuery, Query()], deps: Deps, _: Admin) -> OwnedPage:
    """Every user's, newest first. `total` counts all that match, not only this page."""
    owner = UserId(str(query.owner_user_id)) if query.owner_user_id else None
    found, total = await Overview(deps.database).page(
        limit=query.limit, offset=query.offset, phase=query.phase, owner=owner
    )
    return OwnedPage(items=[OwnedWorkspace.of(one.entry, one.owner) for one in found], total=total)


@router.get("/{workspace_id}", responses=answers(401, 404))
async def get_any_workspace(workspace_id: UUID, deps: Deps, _: AdminOfIt) -> OwnedWorkspace:
    """Anybody's. Also while it is being deleted; 404 once it is."""
    return await _owned(deps, await deps.catalog.get(workspace_id_of(workspace_id), _ANYBODYS))


@router.get("/{workspace_id}/explain", responses=answers(401, 404))
async def explain_any_workspace(workspace_id: UUID, deps: Deps, _: AdminOfIt) -> ExplainBody:
    """As its owner is told."""
    return await explained(deps, workspace_id_of(workspace_id), _ANYBODYS)


@router.get("/{workspace_id}/operations", responses=answers(401, 404, 422))
async def list_any_operations(
    workspace_id: UUID, query: Annotated[PageQuery, Query()], deps: Deps, _: AdminOfIt
) -> OperationPage:
    """The operation log, as its owner sees it."""
    return await one_workspace.operations(deps, workspace_id_of(workspace_id), _ANYBODYS, query)


@router.post("/{workspace_id}/recover", responses=answers(401, 403, 404, 409, 429))
async def recover_any_workspace(workspace_id: UUID, deps: Deps, _: AdminOfIt) -> OwnedWorkspace:
    """As its owner would: after DataLost this accepts the loss for them. 409 `not_in_error`; 429 `limit_per_user`
    (of the owner's) or `limit_global`."""
    return await _owned(deps, await one_workspace.recover(deps, workspace_id_of(workspace_id), _ANYBODYS))


@router.delete("/{workspace_id}", status_code=204, responses=answers(401, 403, 404, 409))
async def delete_any_workspace(workspace_id: UUID, deps: Deps, _: AdminOfIt) -> None:
    """With all that is in it, from any phase. 409 `operation_running`."""
    await one_workspace.delete(deps, workspace_id_of(workspace_id), _ANYBODYS)


async def _owned(deps: Dependencies, entry: Entry) -> OwnedWorkspace:
    return OwnedWorkspace.of(entry, (await deps.accounts.get(entry.workspace.owner_user_id)).username)
