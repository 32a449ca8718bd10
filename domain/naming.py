"""Names of everything that belongs to a workspace (SPEC 2)."""

from domain.model import OperationId, WorkspaceId


def container_name(workspace_id: WorkspaceId) -> str:
    return f"ws-{workspace_id}"


def volume_name(workspace_id: WorkspaceId) -> str:
    return f"ws-{workspace_id}-home"


def workflow_id(workspace_id: WorkspaceId) -> str:
    return f"ws-{workspace_id}"


def archive_key(workspace_id: WorkspaceId, archive_op_id: OperationId) -> str:
    return f"{workspace_id}/{archive_op_id}/home.tar.zst"


def meta_key(key: str) -> str:
    """The commit marker beside an archive."""
    return f"{key}.meta"


def node_queue(node: str) -> str:
    return f"node-{node}"
