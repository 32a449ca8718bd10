"""GC as a workflow, on a Schedule."""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from workflows.messages import COLLECT_GARBAGE, GC_WORKFLOW, GcInput, GcReport


@workflow.defn(name=GC_WORKFLOW)
class GcWorkflow:
    @workflow.run
    async def run(self, request: GcInput) -> GcReport:
        report: GcReport = await workflow.execute_activity(
            COLLECT_GARBAGE,
            request,
            result_type=GcReport,
            start_to_close_timeout=timedelta(hours=3),
            heartbeat_timeout=timedelta(minutes=2),
            retry_policy=RetryPolicy(maximum_attempts=3),
        )
        return report
