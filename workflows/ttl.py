"""The TTL runner as a workflow, on a Schedule."""

from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from workflows.messages import EXPIRE, TTL_WORKFLOW, ExpireInput, TtlReport


@workflow.defn(name=TTL_WORKFLOW)
class TtlWorkflow:
    @workflow.run
    async def run(self) -> TtlReport:
        unknown_at = _unknown_at()
        # One try: the next tick is as good as a retry, and knows more.
        report: TtlReport = await workflow.execute_activity(
            EXPIRE,
            # Nothing, where there is nothing to tell: workers of the version before take no argument.
            args=[ExpireInput(unknown_at)] if unknown_at else [],
            result_type=TtlReport,
            start_to_close_timeout=timedelta(seconds=50),
            retry_policy=RetryPolicy(maximum_attempts=1),
        )
        return report


def _unknown_at() -> datetime | None:
    """As the Schedule hands it on from the tick before. One that failed did not see who was active."""
    if workflow.get_last_failure() is not None:
        return workflow.now()
    last: TtlReport | None = workflow.get_last_completion_result(TtlReport)
    return last.unknown_at if last else None
