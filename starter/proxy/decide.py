"""What a request to a workspace gets (SPEC 13): one pure function, for HTTP and WebSocket alike."""

from dataclasses import dataclass
from enum import StrEnum

from domain.model import DesiredState, ErrorReason, Operation, Phase, UserId, Workspace, WorkspaceId

# How soon it is worth asking again while something is under way.
RETRY_AFTER = 2


class Kind(StrEnum):
    """Of a request. Only a person's opening of a page may wake a workspace."""

    NAVIGATION = "navigation"
    OTHER = "other"
    WEBSOCKET = "websocket"


class PageKind(StrEnum):
    """Pages that end in a person's decision, or say that there is none to take."""

    RESTORE_NEEDED = "restore_needed"
    START_NEEDED = "start_needed"
    ERROR = "error"
    LIMIT = "limit"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class View:
    """What the proxy knows of a workspace."""

    id: WorkspaceId
    owner: UserId
    name: str
    phase: Phase
    operation: Operation
    desired_state: DesiredState
    endpoint: str | None
    error_reason: ErrorReason | None

    @classmethod
    def of(cls, ws: Workspace) -> "View":
        return cls(
            ws.id, ws.owner_user_id, ws.name, ws.phase, ws.operation, ws.desired_state, ws.endpoint, ws.error_reason
        )


@dataclass(frozen=True, slots=True)
class Pass:
    endpoint: str


@dataclass(frozen=True, slots=True)
class Wake:
    """Set desired_state to RUNNING, then the page that follows it."""


@dataclass(frozen=True, slots=True)
class Follow:
    """Something is under way already: a page that goes on by itself when it ends."""


@dataclass(frozen=True, slots=True)
class Page:
    """502: a page for a navigation, its words as JSON for anything else."""

    kind: PageKind


@dataclass(frozen=True, slots=True)
class Unavailable:
    """503 + Retry-After; nothing is woken."""

    retry_after: int = RETRY_AFTER


@dataclass(frozen=True, slots=True)
class NotFound:
    pass


@dataclass(frozen=True, slots=True)
class LogIn:
    """To the login page, and back from there."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Before any upgrade, and before anything is known of the workspace."""

    status: int


@dataclass(frozen=True, slots=True)
class CloseTryAgain:
    """The WebSocket is accepted and closed with 1013: the client knows that it may come back."""


Decision = Pass | Wake | Follow | Page | Unavailable | NotFound | LogIn | Refuse | CloseTryAgain


def decide(user: UserId | None, view: View | None, kind: Kind) -> Decision:
    if user is None:
        return LogIn() if kind is Kind.NAVIGATION else Refuse(401)
    if view is None or view.owner != user or view.phase is Phase.DELETED:
        return Refuse(404) if kind is Kind.WEBSOCKET else NotFound()
    if view.phase is Phase.RUNNING and view.operation is Operation.NONE and view.endpoint is not None:
        return Pass(view.endpoint)
    if kind is Kind.WEBSOCKET:
        return CloseTryAgain()
    if _is_under_way(view):
        return Follow() if kind is Kind.NAVIGATION else Unavailable()
    match view.phase:
        case Phase.STANDBY:
            return Wake() if kind is Kind.NAVIGATION else Unavailable()
        case Phase.ARCHIVED:
            return Page(PageKind.RESTORE_NEEDED)
        case Phase.PENDING:
            return Page(PageKind.START_NEEDED)
        case Phase.RUNNING:
            return Page(PageKind.UNREACHABLE)
        case _:
            return Page(PageKind.ERROR)


def _is_under_way(view: View) -> bool:
    """An operation runs, or was asked for and is about to: whoever pressed "restore" is not asked once more."""
    if view.phase is Phase.ERROR:
        # Without a reason it was recovered, and what comes next has not been found out yet.
        return view.error_reason is None
    if view.operation is not Operation.NONE or view.phase is Phase.DELETING:
        return True
    match view.desired_state:
        case DesiredState.DELETED:
            return True
        case DesiredState.RUNNING | DesiredState.STANDBY:
            return view.phase in {Phase.PENDING, Phase.ARCHIVED}
    return False
