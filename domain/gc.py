"""Which stored objects GC must keep (SPEC 3.9). Pure."""

import re
from dataclasses import dataclass

from domain.model import HomeContext, Operation, OperationId, Phase, WorkspaceId
from domain.naming import UUID, archive_key

_UPLOADING = frozenset({Operation.ARCHIVING, Operation.CREATE_EMPTY_ARCHIVE})
_ARCHIVE = re.compile(rf"(?P<workspace>{UUID})/(?P<operation>{UUID})/home\.tar\.zst(?:\.meta)?")


@dataclass(frozen=True, slots=True)
class Claims:
    """What a workspace's row says about its archives."""

    workspace_id: WorkspaceId
    phase: Phase
    archive_key: str | None
    archive_op_id: OperationId | None
    home_ctx: HomeContext
    operation: Operation = Operation.NONE


def workspace_of(key: str) -> WorkspaceId | None:
    """Whose archive this is; None for anything that codehub did not make: that is never touched."""
    found = _ARCHIVE.fullmatch(key)
    return WorkspaceId(found["workspace"]) if found else None


def operation_of(key: str) -> OperationId | None:
    """Which operation made it."""
    found = _ARCHIVE.fullmatch(key)
    return OperationId(found["operation"]) if found else None


def is_protected(key: str, claims: Claims | None) -> bool:
    """Whether the object may be wanted again. `claims` is None where the database knows no such workspace."""
    if workspace_of(key) is None:
        return True
    if claims is None or claims.phase is Phase.DELETED:
        return False
    if claims.phase is Phase.ERROR:
        return True
    wanted = {claims.archive_key, claims.home_ctx.restoring, claims.home_ctx.restore_marker}
    if claims.archive_op_id is not None:
        wanted.add(archive_key(claims.workspace_id, claims.archive_op_id))
    return key.removesuffix(".meta") in wanted


def is_uploading(key: str, claims: Claims | None) -> bool:
    """Whether an unfinished upload under this key can still be completed: only by the operation under way. One that
    failed never goes on with it, not even in a workspace that is in ERROR: the next attempt begins its own."""
    if claims is None or claims.operation not in _UPLOADING or claims.archive_op_id is None:
        return False
    return key == archive_key(claims.workspace_id, claims.archive_op_id)
