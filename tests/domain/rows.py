"""Rows and observations to judge, in one line each."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from domain.model import (
    Condition,
    ConditionName,
    Conditions,
    DesiredState,
    HomeContext,
    Operation,
    OperationId,
    Phase,
    UserId,
    Workspace,
    WorkspaceId,
)
from domain.naming import archive_key
from domain.observation import ContainerState, Observation, Presence, Resources

ID = WorkspaceId("6f1c")
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
EARLIER = NOW - timedelta(hours=1)
DELETED_AT = NOW - timedelta(minutes=1)
OP = OperationId("op-now")
OLD_OP = OperationId("op-old")
OWN_KEY = archive_key(ID, OP)
OLD_KEY = archive_key(ID, OLD_OP)
RESTORING = HomeContext(restoring=OLD_KEY)
RESTORED = HomeContext(restore_marker=OLD_KEY)
REMOVING = HomeContext(removing=OWN_KEY)


def row(operation: Operation = Operation.NONE, **changes: Any) -> Workspace:
    """A row at rest, or with `operation` claimed a second ago; `changes` are columns."""
    ws = Workspace(
        id=ID,
        owner_user_id=UserId("ann"),
        name="demo",
        image_ref="ide:1",
        desired_state=DesiredState.RUNNING,
        created_at=EARLIER,
        updated_at=EARLIER,
        phase_changed_at=EARLIER,
        node="n1",
    )
    if operation is not Operation.NONE:
        claimed = {"operation": operation, "op_id": OP, "op_started_at": NOW - timedelta(seconds=1)}
        changes = claimed | changes
    return replace(ws, **changes)


def formerly(
    *, volume: bool = False, container: bool = False, archive: str | None = None, healthy: bool = True
) -> Conditions:
    """Conditions as an earlier reconcile saved them; `archive` is the key that was seen."""
    return {
        ConditionName.VOLUME_READY: Condition(volume, "VolumePresent" if volume else "VolumeAbsent", "", EARLIER),
        ConditionName.ARCHIVE_READY: Condition(
            archive is not None, "ArchivePresent" if archive else "NoArchive", archive or "", EARLIER
        ),
        ConditionName.CONTAINER_READY: Condition(
            container, "ContainerReady" if container else "ContainerAbsent", "", EARLIER
        ),
        ConditionName.HEALTHY: Condition(healthy, "InvariantsHold" if healthy else "DataLost", "", EARLIER),
    }


def seen(
    volume: Presence = Presence.ABSENT,
    container: ContainerState = ContainerState.ABSENT,
    archive: Presence = Presence.UNKNOWN,
) -> Observation:
    return Observation(Resources(container, volume), archive)


def violated_checks(ws: Workspace) -> list[str]:
    """The CHECK constraints of `workspaces` that this row breaks: PostgreSQL would refuse to save it."""
    at_rest = ws.operation is Operation.NONE
    deleted = ws.deleted_at is not None
    archiving = ws.operation in {Operation.ARCHIVING, Operation.CREATE_EMPTY_ARCHIVE}
    marked = ws.home_ctx.restoring is not None or (
        ws.archive_key is not None and ws.home_ctx.restore_marker == ws.archive_key
    )
    checks = {
        "operation_has_start": at_rest == (ws.op_started_at is None) and at_rest == (ws.op_id is None),
        "error_has_no_operation": ws.phase is not Phase.ERROR or at_rest,
        "reason_is_in_error": ws.error_reason is None or ws.phase is Phase.ERROR,
        "deleted_is_desired": (ws.desired_state is DesiredState.DELETED) == deleted,
        "deletion_was_asked": ws.phase not in {Phase.DELETING, Phase.DELETED} or deleted,
        "deleted_is_at_rest": ws.phase is not Phase.DELETED or at_rest,
        "archiving_has_archive_op_id": not archiving or ws.archive_op_id is not None,
        "restoring_is_marked": ws.operation is not Operation.RESTORING or marked,
        "restoring_has_archive_key": ws.home_ctx.restoring is None or ws.archive_key is not None,
        "deleting_was_asked": ws.operation is not Operation.DELETING or deleted,
        "provisioning_has_no_archive": ws.operation is not Operation.PROVISIONING or ws.archive_key is None,
        "archived_has_archive_key": ws.phase is not Phase.ARCHIVED or ws.archive_key is not None,
    }
    return [name for name, holds in checks.items() if not holds]
