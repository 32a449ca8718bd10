"""Between rows of `workspaces` and `domain.model.Workspace`."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import asyncpg

from domain.model import (
    Condition,
    ConditionName,
    Conditions,
    DesiredState,
    ErrorReason,
    HomeContext,
    Operation,
    OperationId,
    Phase,
    UserId,
    Workspace,
    WorkspaceId,
)


def to_workspace(row: asyncpg.Record) -> Workspace:
    return Workspace(
        id=WorkspaceId(str(row["id"])),
        owner_user_id=UserId(str(row["owner_user_id"])),
        name=row["name"],
        description=row["description"],
        memo=row["memo"],
        image_ref=row["image_ref"],
        desired_state=DesiredState(row["desired_state"]),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        phase=Phase(row["phase"]),
        phase_changed_at=row["phase_changed_at"],
        operation=Operation(row["operation"]),
        op_id=_operation_id(row["op_id"]),
        op_started_at=row["op_started_at"],
        conditions=to_conditions(row["conditions"]),
        observed_at=row["observed_at"],
        archive_op_id=_operation_id(row["archive_op_id"]),
        archive_key=row["archive_key"],
        error_count=row["error_count"],
        error_reason=ErrorReason(row["error_reason"]) if row["error_reason"] else None,
        home_ctx=to_home_ctx(row["home_ctx"]),
        endpoint=row["endpoint"],
        node=row["node"],
        move_to=row["move_to"],
        deleted_at=row["deleted_at"],
        last_access_at=row["last_access_at"],
        standby_ttl_seconds=row["standby_ttl_seconds"],
        archive_ttl_seconds=row["archive_ttl_seconds"],
    )


def to_conditions(stored: Mapping[str, Mapping[str, Any]]) -> Conditions:
    return {
        ConditionName(name): Condition(
            status=value["status"] == "True",
            reason=value["reason"],
            message=value["message"],
            last_transition_time=datetime.fromisoformat(value["last_transition_time"]),
        )
        for name, value in stored.items()
    }


def from_conditions(conditions: Conditions) -> dict[str, dict[str, str]]:
    return {
        name.value: {
            "status": str(condition.status),
            "reason": condition.reason,
            "message": condition.message,
            "last_transition_time": condition.last_transition_time.isoformat(),
        }
        for name, condition in conditions.items()
    }


def to_home_ctx(stored: Mapping[str, str]) -> HomeContext:
    """What a newer version says beside it is not for this one."""
    return HomeContext(stored.get("restoring"), stored.get("restore_marker"), stored.get("removing"))


def from_home_ctx(home: HomeContext) -> dict[str, str]:
    values = {"restoring": home.restoring, "restore_marker": home.restore_marker, "removing": home.removing}
    return {key: value for key, value in values.items() if value is not None}


def _operation_id(value: object) -> OperationId | None:
    return OperationId(str(value)) if value is not None else None
