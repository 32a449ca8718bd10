"""Auto-wake (SPEC 11, 13): a person who opens a workspace in STANDBY wants it to be RUNNING."""

from dataclasses import dataclass
from typing import Protocol

import structlog

from adapters.postgres.accounts import User
from adapters.postgres.actor import acting
from adapters.postgres.catalog import Catalog
from adapters.postgres.desired_state import DesiredStates, Refusal, Refused
from domain.audit import Actor, ActorKind
from domain.model import DesiredState, Phase, UserId, Workspace
from starter.api.wakes import Wakes
from starter.proxy.decide import View

log = structlog.get_logger()

_MOST_LISTED = 200


class Needed(Protocol):
    @property
    def desired_states(self) -> DesiredStates: ...
    @property
    def catalog(self) -> Catalog: ...
    @property
    def wakes(self) -> Wakes: ...


class NotWoken(Exception):
    """The workspace is not what it was: look again."""


@dataclass
class Limited(Exception):
    """`running` are the user's workspaces that hold a place."""

    is_own: bool
    limit: int
    running: list[View]


async def wake(needed: Needed, user: User, view: View, request_id: str | None = None) -> View:
    """Raises Limited or NotWoken. As everywhere: the transaction first, then the signal."""
    try:
        with acting(Actor(ActorKind.AUTO_WAKE, user.username, user.id, request_id=request_id)):
            ws = await needed.desired_states.set(view.id, DesiredState.RUNNING, user.id)
    except Refused as refused:
        if refused.refusal in {Refusal.USER_LIMIT, Refusal.GLOBAL_LIMIT}:
            running = await _running(needed.catalog, user.id)
            raise Limited(refused.refusal is Refusal.USER_LIMIT, refused.limit or 0, running) from refused
        raise NotWoken from refused
    log.info("woken_by_visit", workspace=view.id)
    await needed.wakes.after_commit(view.id)
    return View.of(ws)


async def _running(catalog: Catalog, user: UserId) -> list[View]:
    page = await catalog.page(user, limit=_MOST_LISTED, offset=0)
    return [View.of(entry.workspace) for entry in page.items if _holds_a_place(entry.workspace)]


def _holds_a_place(ws: Workspace) -> bool:
    wanted = ws.desired_state is DesiredState.RUNNING or ws.phase is Phase.RUNNING
    return wanted and ws.error_reason is None and ws.deleted_at is None
