"""Workspaces as JSON: what comes in and what goes out (SPEC 12)."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import BaseModel, Field

from adapters.postgres.catalog import Entry, LoggedOperation, Metadata, Page
from adapters.postgres.rows import from_conditions
from domain.audit import Change
from domain.model import ConditionName, DesiredState, ErrorReason, Operation, Phase
from domain.progress import Stage
from starter.api.change_body import CauseBody
from starter.api.fields import Description, ImageRef, Memo, Name, PageQuery, RequestBody, TtlSeconds

# DELETE deletes: it is not a state to patch to.
Wanted = Literal[DesiredState.RUNNING, DesiredState.STANDBY, DesiredState.ARCHIVED]

_METADATA = frozenset({"name", "description", "memo", "standby_ttl_seconds", "archive_ttl_seconds"})


class WorkspaceQuery(PageQuery):
    phase: Phase | None = Field(None, description="Only workspaces in this phase.")


class CreateWorkspace(RequestBody):
    name: Name
    description: Description = ""
    image_ref: ImageRef | None = None
    desired_state: Wanted = DesiredState.RUNNING
    standby_ttl_seconds: TtlSeconds | None = None
    archive_ttl_seconds: TtlSeconds | None = None


class PatchWorkspace(RequestBody):
    """What is not given stays as it is. (The factories keep invented defaults out of the OpenAPI document.)"""

    name: Name = Field(default_factory=str)
    description: Description = Field(default_factory=str)
    memo: Memo = Field(default_factory=str)
    desired_state: Wanted = Field(default_factory=lambda: DesiredState.RUNNING)
    standby_ttl_seconds: TtlSeconds | None = None
    archive_ttl_seconds: TtlSeconds | None = None

    @property
    def wanted(self) -> DesiredState | None:
        return self.desired_state if "desired_state" in self.model_fields_set else None

    @property
    def metadata(self) -> Metadata:
        return Metadata(
            given=_METADATA & self.model_fields_set,
            name=self.name,
            description=self.description,
            memo=self.memo,
            standby_ttl_seconds=self.standby_ttl_seconds,
            archive_ttl_seconds=self.archive_ttl_seconds,
        )


class ConditionBody(BaseModel):
    status: Literal["True", "False"]
    reason: str
    message: str
    last_transition_time: datetime


class ProgressBody(BaseModel):
    """How far the operation under way has come. `workspace_progress` tells the same, live."""

    stage: Stage = Field(
        description="`TRANSFERRING`: between the home and the store. `VERIFYING`: the store's copy is read back."
    )
    bytes_done: int = Field(description="Of this stage, in bytes of the home.")
    bytes_total: int | None = Field(description="Null while it is not known yet.")
    bytes_per_second: int | None = Field(description="Of the last ten seconds; null where that can't be said.")
    eta_seconds: float | None = Field(description="Until this stage ends, at that pace.")
    attempt: int


class WorkspaceBody(BaseModel):
    id: UUID
    owner_user_id: UUID
    name: str
    description: str
    memo: str
    image_ref: str
    phase: Phase
    operation: Operation
    desired_state: DesiredState
    conditions: dict[ConditionName, ConditionBody]
    archive_key: str | None
    error_reason: ErrorReason | None
    error_count: int
    progress: ProgressBody | None
    standby_ttl_seconds: int | None
    archive_ttl_seconds: int | None
    created_at: datetime
    updated_at: datetime
    last_access_at: datetime | None
    phase_changed_at: datetime
    op_started_at: datetime | None
    node: str | None

    @classmethod
    def of(cls, entry: Entry) -> "WorkspaceBody":
        ws = entry.workspace
        return cls.model_validate(
            {
                **{name: getattr(ws, name) for name in cls.model_fields if hasattr(ws, name)},
                "conditions": from_conditions(ws.conditions),
                "progress": entry.progress,
            },
            from_attributes=True,
        )


class WorkspacePage(BaseModel):
    items: list[WorkspaceBody]
    total: int

    @classmethod
    def of(cls, page: Page) -> "WorkspacePage":
        return cls(items=[WorkspaceBody.of(entry) for entry in page.items], total=page.total)


class OperationBody(BaseModel):
    """One line of the operation log. `outcome` is null, and the duration goes on, while it is under way."""

    id: UUID
    operation: Operation
    previous_phase: Phase
    started_at: datetime
    finished_at: datetime | None
    duration_seconds: float
    attempts: int
    outcome: Literal["SUCCEEDED", "FAILED"] | None
    error_reason: ErrorReason | None
    error_message: str | None
    bytes_done: int | None
    bytes_total: int | None
    left_out: dict[str, int] | None = Field(
        description="Of an archive: how many sockets and devices of the home are not in it. Without `sockets` where "
        "the engine read the home: it leaves them out and does not count them."
    )
    cause: CauseBody | None
    """What it was for, and who asked for it."""

    @classmethod
    def of(cls, logged: LoggedOperation, cause: Change | None) -> "OperationBody":
        fields = {name: getattr(logged, name) for name in cls.model_fields if hasattr(logged, name)}
        return cls.model_validate({**fields, "cause": CauseBody.of(cause) if cause else None})


class OperationPage(BaseModel):
    items: list[OperationBody]
    total: int
