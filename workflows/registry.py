"""Every workflow, and the sandbox in which tests and `codehub worker --verify` run them. Workers run them without: a
sandbox is there to find what would not replay before it is deployed (docs/adr/0024-no-sandbox-where-people-work.md)."""

import gc

from temporalio import workflow
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from workflows.gc import GcWorkflow
from workflows.ttl import TtlWorkflow
from workflows.workspace import WorkspaceWorkflow

WORKFLOWS: list[type] = [WorkspaceWorkflow, GcWorkflow, TtlWorkflow]


class _Runner(SandboxedWorkflowRunner):
    def prepare_workflow(self, defn: workflow._Definition) -> None:
        """With no garbage collected meanwhile. The sandbox imports, and before Python 3.12 an import fails with a
        KeyError if garbage is collected at the wrong moment that imports something itself, as whatever gives a
        ResourceWarning does (python/cpython#91351). Here nobody would try again; later, Temporal does.
        """
        enabled = gc.isenabled()
        gc.disable()
        try:
            super().prepare_workflow(defn)
        finally:
            if enabled:
                gc.enable()


def sandbox() -> SandboxedWorkflowRunner:
    return _Runner(
        restrictions=SandboxRestrictions.default.with_passthrough_modules(
            "domain", "pydantic", "structlog", "opentelemetry"
        )
    )
