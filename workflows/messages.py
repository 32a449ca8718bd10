"""What workflows, activities and clients say to each other. Stable: histories hold these for years."""

from dataclasses import dataclass, field
from enum import StrEnum

from domain.model import DesiredState, ErrorReason, Operation, OperationId, Phase, UserId, WorkspaceId

TASK_QUEUE = "codehub"
WORKSPACE_WORKFLOW = "WorkspaceWorkflow"
WAKE = "wake"
RECONCILE = "reconcile"
FAIL = "fail"

NO_OPERATION = OperationId("")

SEARCH_ATTRIBUTES = {
    "Phase": "Keyword",
    "Operation": "Keyword",
    "DesiredState": "Keyword",
    "Owner": "Keyword",
    "Node": "Keyword",
}


@dataclass(frozen=True)
class WorkspaceInput:
    workspace_id: WorkspaceId
    history_limit: int = 400
    """Continue as new beyond this many events: replaying a short history is fast."""


@dataclass(frozen=True)
class Status:
    """What the Temporal UI can search for and the `status` query answers."""

    phase: Phase
    operation: Operation
    desired_state: DesiredState
    owner: UserId
    name: str
    node: str | None = None
    error_reason: ErrorReason | None = None


class StepKind(StrEnum):
    RUN = "RUN"
    """Run the operation."""
    WAIT = "WAIT"
    """Nothing to do until a wake, or until the time is over."""
    GONE = "GONE"
    """The workspace is deleted."""


@dataclass(frozen=True)
class Step:
    """What the workflow does next."""

    kind: StepKind
    status: Status | None = None
    operation: Operation = Operation.NONE
    op_id: OperationId = NO_OPERATION
    task_queue: str | None = None
    """Where the operation runs: the queue of the workspace's node."""
    timeout_seconds: float = 0
    heartbeat_seconds: float = 5
    """An attempt that is silent for longer is taken for lost with its worker."""
    wait_seconds: float = 0
    looking: bool = False
    """WAIT because something could not be observed."""


@dataclass(frozen=True)
class ReconcileInput:
    workspace_id: WorkspaceId
    looks: int = 0
    """How often in a row something could not be observed."""
    resumed: bool = False
    """The worker that ran the operation was lost: its clock starts anew."""


@dataclass(frozen=True)
class OperateInput:
    workspace_id: WorkspaceId
    op_id: OperationId


@dataclass(frozen=True)
class FailInput:
    workspace_id: WorkspaceId
    op_id: OperationId
    reason: ErrorReason
    message: str


GC_WORKFLOW = "GcWorkflow"
COLLECT_GARBAGE = "collect_garbage"


@dataclass(frozen=True)
class GcInput:
    dry_run: bool = False


@dataclass
class GcReport:
    """What a run of GC found and did."""

    dry_run: bool = False
    held: bool = False
    """Deleted nothing: the database is an older backup, or the bucket is another installation's."""
    listed: int = 0
    orphans: int = 0
    deleted: int = 0
    deleted_bytes: int = 0
    aborted_uploads: int = 0
    keys: list[str] = field(default_factory=list)
    """Of a dry run: the first orphans."""

    def as_dict(self) -> dict[str, object]:
        return {
            "held": self.held,
            "listed": self.listed,
            "orphans": self.orphans,
            "deleted": self.deleted,
            "deleted_bytes": self.deleted_bytes,
            "aborted_uploads": self.aborted_uploads,
        }


TTL_WORKFLOW = "TtlWorkflow"
EXPIRE = "expire"


@dataclass
class TtlReport:
    """What a tick of the TTL runner did."""

    active: int = 0
    standby: int = 0
    archived: int = 0
    standby_skipped: bool = False
