"""What workflows, activities and clients say to each other. Stable: histories hold these for years."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from domain.model import DesiredState, ErrorReason, Operation, OperationId, Phase, UserId, WorkspaceId
from domain.naming import DEFAULT_NODE, node_queue

TASK_QUEUE = "codehub"
CHORES_QUEUE = "codehub-chores"
"""What any worker can do, whatever its node: TTL and GC."""
WORKSPACE_WORKFLOW = "WorkspaceWorkflow"
WAKE = "wake"
RECONCILE = "reconcile"
FAIL = "fail"
NO_PLACE = "NoPlace"
"""The type of the failure of an activity that was not begun: its worker has as many of its kind as it may."""

NO_OPERATION = OperationId("")

SEARCH_ATTRIBUTES = {
    "Phase": "Keyword",
    "Operation": "Keyword",
    "DesiredState": "Keyword",
    "Owner": "Keyword",
    "Node": "Keyword",
}


def operations_queue(node: str) -> str:
    """Those of the default node begin on the workflows' own queue, without a round trip."""
    return TASK_QUEUE if node == DEFAULT_NODE else node_queue(node)


@dataclass(frozen=True)
class WorkspaceInput:
    workspace_id: WorkspaceId
    history_limit: int = 120
    """Continue as new beyond this many events, some eight transitions: a worker that has just begun replays the
    histories of all that are woken (docs/adr/0024-no-sandbox-where-people-work.md)."""


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
    owner_name: str = ""
    """For people. Histories from before it was told have none, and show no memo."""


class StepKind(StrEnum):
    RUN = "RUN"
    """Run the operation."""
    WAIT = "WAIT"
    """Nothing to do until a wake, or until the time is over."""
    ASK = "ASK"
    """Reconcile on the queue of the workspace's node: only its worker can look."""
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
    taken_within_seconds: float = 5
    """For what goes to the queue of a node. Who is late is asked for again, until the node counts as lost: so much
    later at most does an operation under way hear of it."""
    turn_within_seconds: float = 0
    """In place of that, in a run that heeds wakes while it waits: whoever finds the node lost wakes it, so it can wait
    for its turn at a node with its hands full. That is no part of the operation's timeout. 0: there is no such time."""


@dataclass(frozen=True)
class ReconcileInput:
    workspace_id: WorkspaceId
    looks: int = 0
    """How often in a row something could not be observed."""
    resumed: bool = False
    """The worker that ran the operation was lost: its clock starts anew."""
    unseen: bool = False
    """Its node was asked and did not answer: what it holds is unknown."""
    waiting: bool = False
    """Woken while its node was asked, or had the operation: ASK means to go on waiting."""


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
    accept_restored: bool = False
    """A person says that the database is right: what it does not know is nobody's."""


@dataclass
class GcReport:
    """What a run of GC found and did."""

    dry_run: bool = False
    held: bool = False
    """Deleted nothing: the database is an older backup, or the bucket is another installation's."""
    listed: int = 0
    orphans: int = 0
    unknown: int = 0
    """Of these, made by operations that the database never heard of: they wait longer."""
    deleted: int = 0
    deleted_bytes: int = 0
    aborted_uploads: int = 0
    refused: int = 0
    """Those that were to go and stay, because the store would not delete them or their markers."""
    refused_keys: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    """Of a dry run: the orphans; the first of them where there are many, here and below."""
    due: int = 0
    due_bytes: int = 0
    due_keys: list[str] = field(default_factory=list)
    """Of a dry run: those that a run would delete now."""
    stale_uploads: int = 0
    upload_keys: list[str] = field(default_factory=list)
    """Of a dry run: what was being uploaded by the broken-off uploads that a run would end now."""

    def as_dict(self) -> dict[str, object]:
        return {
            "held": self.held,
            "listed": self.listed,
            "orphans": self.orphans,
            "unknown": self.unknown,
            "deleted": self.deleted,
            "deleted_bytes": self.deleted_bytes,
            "aborted_uploads": self.aborted_uploads,
            "refused": self.refused,
        }


TTL_WORKFLOW = "TtlWorkflow"
EXPIRE = "expire"


@dataclass(frozen=True)
class ExpireInput:
    unknown_at: datetime
    """When a tick last did not know who was active."""


@dataclass
class TtlReport:
    """What a tick of the TTL runner did."""

    active: int = 0
    standby: int = 0
    archived: int = 0
    standby_skipped: bool = False
    unknown_at: datetime | None = None
    """For the next tick: when it was last unknown who is active, if that is not long ago."""
