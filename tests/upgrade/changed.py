"""The workspace's workflow as an upgrade could break it: it begins with another step."""

from datetime import timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from workflows.messages import WAKE, WORKSPACE_WORKFLOW, WorkspaceInput


@workflow.defn(name=WORKSPACE_WORKFLOW)
class ChangedWorkflow:
    @workflow.signal(name=WAKE)
    def wake(self) -> None:
        """Heard and forgotten."""

    @workflow.run
    async def run(self, start: WorkspaceInput) -> None:
        await workflow.execute_activity("look_first", start.workspace_id, start_to_close_timeout=timedelta(seconds=1))
