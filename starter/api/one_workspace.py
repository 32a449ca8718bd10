"""What can be done with one workspace, whoever may: `owner` is whose it has to be, None anybody's (for admins only)."""

from uuid import UUID

from adapters.postgres.catalog import Entry
from domain.model import UserId, WorkspaceId
from starter.api.dependencies import Dependencies
from starter.api.fields import PageQuery
from starter.api.workspace_body import OperationBody, OperationPage


def workspace_id_of(given: UUID) -> WorkspaceId:
    return WorkspaceId(str(given))


async def delete(deps: Dependencies, workspace_id: WorkspaceId, owner: UserId | None) -> None:
    await deps.desired_states.delete(workspace_id, owner)
    await deps.wakes.after_commit(workspace_id)


async def recover(deps: Dependencies, workspace_id: WorkspaceId, owner: UserId | None) -> Entry:
    """Against the limits of its owner, whoever asks."""
    await deps.desired_states.recover(workspace_id, owner)
    await deps.wakes.after_commit(workspace_id)
    return await deps.catalog.get(workspace_id, owner)


async def operations(
    deps: Dependencies, workspace_id: WorkspaceId, owner: UserId | None, query: PageQuery
) -> OperationPage:
    logged, total = await deps.catalog.operations(workspace_id, owner, limit=query.limit, offset=query.offset)
    causes = await deps.audit.causes([one.id for one in logged])
    return OperationPage(items=[OperationBody.of(one, causes.get(one.id)) for one in logged], total=total)
