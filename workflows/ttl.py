"""The TTL runner as a workflow, on a Schedule."""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from workflows.messages import EXPIRE, TTL_WORKFLOW, TtlReport


@workflow.defn(name=TTL_WORKFLOW)
class TtlWorkflow:
    @workflow.run
    async def run(self) -> TtlReport:
        # One try: the next tick is as good as a retry, and knows more.
        report: TtlReport = await workflow.execute_activity(
            EXPIRE,
            result_type=TtlReport,
            start_to_close_timeout=timedelta(seconds=50),
            retry_policy=RetryPolicy(maximum_attempts=1),
        )
        return report
