"""`/api/v1/admin`: the whole installation at a glance, for admins."""

from datetime import datetime

from fastapi import APIRouter
from pydantic import BaseModel, Field

from adapters.postgres.nodes import Nodes
from adapters.postgres.overview import Overview
from domain.model import Phase
from starter.api.authentication import Admin
from starter.api.dependencies import Deps
from starter.api.errors import answers
from starter.api.health import Part, ask_all
from starter.api.installation import LimitsBody

router = APIRouter(prefix="/api/v1/admin", tags=["admin"])


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
