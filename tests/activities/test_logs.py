"""Of which workspace a line speaks: said by one name, whoever says it."""

import ast
from pathlib import Path
from uuid import uuid4

from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from activities.reconcile import Reconciler
from adapters.docker.config import DockerConfig
from adapters.docker.runtime import DockerRuntime
from adapters.postgres.database import Database
from adapters.postgres.workspaces import WorkspaceStore
from adapters.s3.client import S3Config
from adapters.s3.store import open_store
from domain.model import ErrorReason, OperationId, WorkspaceId
from workflows.messages import FailInput, ReconcileInput

ROOT = Path(__file__).parents[2]
PACKAGES = ("activities", "adapters", "coordinator", "starter", "worker.py")
LEVELS = {"debug", "info", "warning", "error", "exception"}
NOWHERE = "127.0.0.1:1"


async def test_every_line_below_a_reconcile_names_its_workspace(database: Database) -> None:
    """Also those of parts that have never heard of workspaces, such as the object store."""
    workspace = WorkspaceId(str(uuid4()))
    await database.execute(
        "INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state, phase, archive_key, node)"
        " SELECT $1, id, 'one', 'image', 'ARCHIVED', 'ARCHIVED', 'key/home.tar.zst', 'local' FROM users",
        workspace,
    )
    runtime = DockerRuntime(DockerConfig("here", docker_host=f"tcp://{NOWHERE}"))
    async with open_store(S3Config(f"http://{NOWHERE}", "key", "bucket", "secret", timeout=1)) as archives:
        reconciler = Reconciler(WorkspaceStore(database), runtime, archives)
        with capture_logs(processors=[merge_contextvars]) as lines:
            await reconciler.reconcile(ReconcileInput(workspace))
            await reconciler.fail(FailInput(workspace, OperationId(str(uuid4())), ErrorReason.TIMEOUT, "too long"))
    await runtime.close()
    assert {"archive_not_observed", "volume_not_observed", "container_not_observed", "operation_failed"} <= {
        line["event"] for line in lines
    }
    assert {line.get("workspace") for line in lines} == {workspace}
    assert [line.get("operation_id") is not None for line in lines] == [
        line["event"] == "operation_failed" for line in lines
    ]


def test_a_workspace_has_one_name_in_the_log() -> None:
    """`workspace`, in every line of the code: one search finds all that was said of it."""
    names = [keyword.arg for call in _logged() for keyword in call.keywords]
    assert names.count("workspace") > 10
    assert not {"workspace_id", "ws", "ws_id"}.intersection(name for name in names if name)


def _logged() -> list[ast.Call]:
    files = [
        file for name in PACKAGES for file in ([ROOT / name] if name.endswith(".py") else (ROOT / name).rglob("*.py"))
    ]
    calls = [node for file in files for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)]
    return [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in LEVELS]
