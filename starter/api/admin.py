"""`/api/v1/admin`: the whole installation at a glance, for admins. It shows; what is done stays with the owners."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from adapters.postgres.nodes import Nodes
from adapters.postgres.overview import Overview, OwnedEntry
from domain.model import DesiredState, ErrorReason, Operation, Phase, UserId
from starter.api.authentication import Admin
from starter.api.dependencies import Deps
from starter.api.errors import answers
from starter.api.health import Part, ask_all
from starter.api.installation import LimitsBody
from starter.api.workspace_body import ProgressBody, WorkspaceBody, WorkspaceQuery

router = APIRouter(prefix="/api/v1/admin", tags=["admin"])


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
    error_reason: ErrorReason | None
    error_count: int
    progress: ProgressBody | None
    created_at: datetime
    last_access_at: datetime | None
    phase_changed_at: datetime
    op_started_at: datetime | None
    node: str | None

    @classmethod
    def of(cls, found: OwnedEntry) -> "OwnedWorkspace":
        whole = WorkspaceBody.of(found.entry)
        shown = {name: getattr(whole, name) for name in cls.model_fields if name in WorkspaceBody.model_fields}
        return cls(owner=found.owner, **shown)


class OwnedPage(BaseModel):
    items: list[OwnedWorkspace]
    total: int


class OverviewBody(BaseModel):
    phases: dict[Phase, int] = Field(description="How many workspaces are in each phase.")
    operating: int = Field(description="Operations under way.")
    running: int = Field(description="What counts against max_running_global.")
    limits: LimitsBody


class EngineBody(BaseModel):
    """The Docker engine of a node, as its workers told."""

    node: str
    answers: bool = Field(description="False: none of the node's workers has heard of its engine for a while.")
    seen_at: datetime = Field(description="When a worker last said that it answers.")


class HealthBody(BaseModel):
    """What `/health/ready` does not ask for: the API works without it, workspaces don't."""

    parts: dict[str, Part] = Field(description="`s3`, where this API process is told of it (S3_ENDPOINT).")
    engines: list[EngineBody]


@router.get("/workspaces", responses=answers(401, 403, 422))
async def list_all_workspaces(query: Annotated[OwnedQuery, Query()], deps: Deps, _: Admin) -> OwnedPage:
    """Every user's, newest first. `total` counts all that match, not only this page."""
    owner = UserId(str(query.owner_user_id)) if query.owner_user_id else None
    found, total = await Overview(deps.database).page(
        limit=query.limit, offset=query.offset, phase=query.phase, owner=owner
    )
    return OwnedPage(items=[OwnedWorkspace.of(one) for one in found], total=total)


@router.get("/overview", responses=answers(401, 403))
async def get_overview(deps: Deps, _: Admin) -> OverviewBody:
    """Counts over all workspaces, against the limits."""
    counts = await Overview(deps.database).counts()
    limits = deps.config.limits
    return OverviewBody(
        phases={phase: counts.phases.get(phase, 0) for phase in Phase if phase is not Phase.DELETED},
        operating=counts.operating,
        running=counts.running,
        limits=LimitsBody(
            max_running_per_user=limits.max_running_per_user, max_running_global=limits.max_running_global
        ),
    )


@router.get("/health", responses=answers(401, 403))
async def get_health(deps: Deps, _: Admin) -> HealthBody:
    """The object store, asked now, and the engine of each node, as last told. See `/health/ready` for the rest."""
    config = deps.config
    parts = await ask_all(deps.watched, config.check_deadline)
    entries = await Nodes(deps.database, config.node_lost_after).entries()
    return HealthBody(
        parts=parts,
        engines=[
            EngineBody(node=entry.node.name, answers=not entry.lost, seen_at=entry.node.seen_at) for entry in entries
        ],
    )
