"""Every living workspace has a running workflow: where one is missing, a wake starts it."""

import asyncio
from dataclasses import dataclass

import structlog
from temporalio.client import Client
from temporalio.service import RPCError

from adapters.postgres.attention import Attention
from adapters.postgres.database import DatabaseUnavailable
from adapters.telemetry.metrics import SKIPPED, WORKFLOWS_MISSING
from domain.model import WorkspaceId
from domain.naming import workflow_id
from workflows.client import TemporalUnavailable, Waker
from workflows.messages import WORKSPACE_WORKFLOW

log = structlog.get_logger()

_RUNNING = f"WorkflowType = '{WORKSPACE_WORKFLOW}' AND ExecutionStatus = 'Running'"


@dataclass(slots=True)
class Census:
    """Counts first: only a difference that lasts is worth a listing."""

    attention: Attention
    client: Client
    waker: Waker
    interval: float = 60.0

    async def run(self) -> None:
        differed = False
        while True:
            try:
                differs = await self._differs()
                if differs and differed:
                    await self.heal()
                differed = differs
            except (DatabaseUnavailable, TemporalUnavailable, RPCError) as error:
                SKIPPED.labels("census").inc()
                log.warning("census_skipped", error=str(error))
            await asyncio.sleep(self.interval)

    async def heal(self) -> list[WorkspaceId]:
        living = await self.attention.living()
        running = {workflow.id async for workflow in self.client.list_workflows(_RUNNING, page_size=1000)}
        missing = [workspace_id for workspace_id in living if workflow_id(workspace_id) not in running]
        for workspace_id in missing:
            log.warning("workflow_was_missing", workspace=workspace_id)
        WORKFLOWS_MISSING.inc(len(missing))
        await self.waker.wake_all(missing)
        return missing

    async def _differs(self) -> bool:
        count = await self.client.count_workflows(_RUNNING)
        return count.count < await self.attention.count_living()
