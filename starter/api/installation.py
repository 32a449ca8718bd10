"""`GET /api/v1/installation`: what a client has to know of this installation to show workspaces rightly."""

from importlib.metadata import version

from fastapi import APIRouter
from pydantic import BaseModel, Field

from starter.api.authentication import Current
from starter.api.dependencies import Deps
from starter.api.errors import answers

router = APIRouter(prefix="/api/v1", tags=["installation"])


class LimitsBody(BaseModel):
    max_running_per_user: int
    max_running_global: int


class TtlDefaultsBody(BaseModel):
    """For workspaces without a TTL of their own; 0 is never."""

    standby_ttl_seconds: int
    archive_ttl_seconds: int


class InstallationBody(BaseModel):
    version: str
    default_image: str
    limits: LimitsBody
    ttl: TtlDefaultsBody
    max_retries: int = Field(description="Failed attempts of one operation that make an ERROR.")
    temporal_ui_url: str | None = Field(description="Where the histories of this namespace are; null if not told.")


@router.get("/installation", responses=answers(401))
async def get_installation(deps: Deps, _: Current) -> InstallationBody:
    """Limits, retries, TTL defaults, the image of new workspaces, and where to read histories."""
    config = deps.config
    return InstallationBody(
        version=version("codehub"),
        default_image=config.default_image,
        limits=LimitsBody(
            max_running_per_user=config.limits.max_running_per_user,
            max_running_global=config.limits.max_running_global,
        ),
        ttl=TtlDefaultsBody(
            standby_ttl_seconds=int(config.ttl.standby.total_seconds()),
            archive_ttl_seconds=int(config.ttl.archive.total_seconds()),
        ),
        max_retries=config.max_retries,
        temporal_ui_url=config.temporal_ui_url,
    )
