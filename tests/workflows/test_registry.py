import gc

import pytest
from temporalio import workflow
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from workflows.registry import sandbox
from workflows.workspace import WorkspaceWorkflow


def test_no_garbage_is_collected_while_the_sandbox_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """It could end a check at its start. Afterwards it is collected as before, also when the workflow was refused."""
    collecting: list[bool] = []

    def prepare(self: SandboxedWorkflowRunner, defn: workflow._Definition) -> None:
        collecting.append(gc.isenabled())
        raise RuntimeError("refused")

    monkeypatch.setattr(SandboxedWorkflowRunner, "prepare_workflow", prepare)
    with pytest.raises(RuntimeError, match="refused"):
        sandbox().prepare_workflow(workflow._Definition.must_from_class(WorkspaceWorkflow))
    assert collecting == [False]
    assert gc.isenabled()
