"""`/api/v1/workspaces`: what people want of their workspaces. The transaction first, then the wake."""

import hashlib
import json
from typing import Annotated
from uuid import UUID, uuid4

from fastapi import APIRouter, Header, Query

from adapters.postgres.catalog import NewWorkspace
from adapters.postgres.idempotency import IdempotencyKey
from domain.model import DesiredState, WorkspaceId
from starter.api import one_workspace
from starter.api.authentication import Current
from starter.api.dependencies import Deps
from starter.api.errors import answers
from starter.api.fields import Key, PageQuery
from starter.api.one_workspace import workspace_id_of
from starter.api.workspace_body import (
    CreateWorkspace,
    OperationPage,
    PatchWorkspace,
    WorkspaceBody,
    WorkspacePage,
    WorkspaceQuery,
)

router = APIRouter(prefix="/api/v1/workspaces", tags=["workspaces"])

IdempotencyHeader = Annotated[
    Key | None,
    Header(
        alias="Idempotency-Key",
        description="The same key and body again, within 24 hours, give the first answer instead of a second one.",
    ),
]


@router.post("", status_code=201, responses=answers(400, 401, 403, 409, 422, 429))
async def create_workspace(
    body: CreateWorkspace, deps: Deps, current: Current, idempotency_key: IdempotencyHeader = None
) -> WorkspaceBody:
    """409 `name_taken`; 429 `limit_per_user` or `limit_global`; 422 `idempotency_mismatch`."""
    new = NewWorkspace(
        id=WorkspaceId(str(uuid4())),
        owner=current.user.id,
        name=body.name,
        description=body.description,
        image_ref=body.image_ref or deps.config.default_image,
        desired_state=DesiredState(body.desired_state),
        standby_ttl_seconds=body.standby_ttl_seconds,
        archive_ttl_seconds=body.archive_ttl_seconds,
    )
    entry = await deps.catalog.create(new, _key(idempotency_key, body))
    await deps.wakes.after_commit(entry.workspace.id, new=True)
    return WorkspaceBody.of(entry)


@router.get("", responses=answers(401, 422))
async def list_workspaces(query: Annotated[WorkspaceQuery, Query()], deps: Deps, current: Current) -> WorkspacePage:
    """Newest first. `total` counts all that match, not only this page."""
    page = await deps.catalog.page(current.user.id, limit=query.limit, offset=query.offset, phase=query.phase)
    return WorkspacePage.of(page)


@router.get("/{workspace_id}", responses=answers(401, 404))
async def get_workspace(workspace_id: UUID, deps: Deps, current: Current) -> WorkspaceBody:
    """Also while it is being deleted; 404 once it is."""
    return WorkspaceBody.of(await deps.catalog.get(workspace_id_of(workspace_id), current.user.id))


@router.patch("/{workspace_id}", responses=answers(400, 401, 403, 404, 409, 422, 429))
async def patch_workspace(workspace_id: UUID, body: PatchWorkspace, deps: Deps, current: Current) -> WorkspaceBody:
    """All of it or nothing. A desired_state that it already has is no change, and always accepted.

    409 `operation_running`, `in_error`, `deleting` or `name_taken`; 429 `limit_per_user` or `limit_global`.
    """
    entry = await deps.catalog.patch(workspace_id_of(workspace_id), current.user.id, body.metadata, body.wanted)
    if body.wanted is not None:
        # Also when it is no change: a client that lost the answer asks again, and the wake may be lost as well.
        await deps.wakes.after_commit(entry.workspace.id)
    return WorkspaceBody.of(entry)


@router.delete("/{workspace_id}", status_code=204, responses=answers(401, 403, 404, 409))
async def delete_workspace(workspace_id: UUID, deps: Deps, current: Current) -> None:
    """From any phase, also ERROR. 409 `operation_running`."""
    await one_workspace.delete(deps, workspace_id_of(workspace_id), current.user.id)


@router.post("/{workspace_id}/recover", responses=answers(401, 403, 404, 409, 429))
async def recover_workspace(workspace_id: UUID, deps: Deps, current: Current) -> WorkspaceBody:
    """A person accepts what happened: the workspace goes on from what is there. 409 `not_in_error`."""
    return WorkspaceBody.of(await one_workspace.recover(deps, workspace_id_of(workspace_id), current.user.id))


@router.get("/{workspace_id}/operations", responses=answers(401, 404, 422))
async def list_operations(
    workspace_id: UUID, query: Annotated[PageQuery, Query()], deps: Deps, current: Current
) -> OperationPage:
    """The operation log, latest first: what, when, how long, attempts, outcome, bytes, and what it was for."""
    return await one_workspace.operations(deps, workspace_id_of(workspace_id), current.user.id, query)


def _key(given: str | None, body: CreateWorkspace) -> IdempotencyKey | None:
    if given is None:
        return None
    # Of what was asked for, not of how it was written down.
    asked = json.dumps(body.model_dump(mode="json"), sort_keys=True)
    return IdempotencyKey(given, hashlib.sha256(asked.encode()).digest())
