"""The nouns of SPEC 2: phases, desired states, operations, conditions, and the workspace row."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import NewType

WorkspaceId = NewType("WorkspaceId", str)
UserId = NewType("UserId", str)
OperationId = NewType("OperationId", str)


class Phase(StrEnum):
    """Where a workspace is."""

    PENDING = "PENDING"
    ARCHIVED = "ARCHIVED"
    STANDBY = "STANDBY"
    RUNNING = "RUNNING"
    ERROR = "ERROR"
    DELETING = "DELETING"
    DELETED = "DELETED"


LEVELS: Mapping[Phase, int] = MappingProxyType(
    {Phase.PENDING: 0, Phase.ARCHIVED: 5, Phase.STANDBY: 10, Phase.RUNNING: 20}
)


class DesiredState(StrEnum):
    """Where its owner wants it."""

    RUNNING = "RUNNING"
    STANDBY = "STANDBY"
    ARCHIVED = "ARCHIVED"
    DELETED = "DELETED"


class Operation(StrEnum):
    """The step under way."""

    NONE = "NONE"
    PROVISIONING = "PROVISIONING"
    RESTORING = "RESTORING"
    STARTING = "STARTING"
    STOPPING = "STOPPING"
    ARCHIVING = "ARCHIVING"
    CREATE_EMPTY_ARCHIVE = "CREATE_EMPTY_ARCHIVE"
    DELETING = "DELETING"


class ErrorReason(StrEnum):
    TIMEOUT = "Timeout"
    RETRY_EXCEEDED = "RetryExceeded"
    ACTION_FAILED = "ActionFailed"
    UNREACHABLE = "Unreachable"
    DATA_LOST = "DataLost"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    CONTAINER_WITHOUT_VOLUME = "ContainerWithoutVolume"
    ARCHIVE_CORRUPTED = "ArchiveCorrupted"


class ConditionName(StrEnum):
    VOLUME_READY = "storage.volume_ready"
    ARCHIVE_READY = "storage.archive_ready"
    CONTAINER_READY = "infra.container_ready"
    HEALTHY = "policy.healthy"


@dataclass(frozen=True, slots=True)
class Condition:
    """One observed fact, with when it last changed."""

    status: bool
    reason: str
    message: str
    last_transition_time: datetime


Conditions = Mapping[ConditionName, Condition]


@dataclass(frozen=True, slots=True)
class HomeContext:
    """What is known of the home beyond its existence.

    `restoring` holds the archive_key from the claim of RESTORING until the marker is saved, `removing` from the moment
    before ARCHIVING removes the volume until it is gone: meanwhile the volume is not a home, because it may hold a part
    of it only. `restore_marker` is the archive_key that the volume was restored from in full.
    """

    restoring: str | None = None
    restore_marker: str | None = None
    removing: str | None = None

    @property
    def partial(self) -> bool:
        """A volume that is there may not hold all of the home."""
        return self.restoring is not None or self.removing is not None


@dataclass(frozen=True, slots=True)
class Workspace:
    """A row of `workspaces`: the last observation and what is wanted."""

    id: WorkspaceId
    owner_user_id: UserId
    name: str
    image_ref: str
    desired_state: DesiredState
    created_at: datetime
    updated_at: datetime
    phase_changed_at: datetime
    phase: Phase = Phase.PENDING
    operation: Operation = Operation.NONE
    op_id: OperationId | None = None
    op_started_at: datetime | None = None
    conditions: Conditions = field(default_factory=dict)
    observed_at: datetime | None = None
    archive_op_id: OperationId | None = None
    archive_key: str | None = None
    error_count: int = 0
    error_reason: ErrorReason | None = None
    home_ctx: HomeContext = HomeContext()
    endpoint: str | None = None
    node: str | None = None
    move_to: str | None = None
    """The node that keeps a place for it while its own is being drained."""
    deleted_at: datetime | None = None
    last_access_at: datetime | None = None
    description: str = ""
    memo: str = ""
    standby_ttl_seconds: int | None = None
    archive_ttl_seconds: int | None = None

    def condition(self, name: ConditionName) -> bool:
        """A missing condition counts as False, a missing `policy.healthy` as True."""
        found = self.conditions.get(name)
        return found.status if found else name is ConditionName.HEALTHY
