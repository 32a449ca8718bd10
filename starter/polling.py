"""The task queues that a worker polls.

| queue            | who polls it                     | what runs there                                        |
|------------------|----------------------------------|--------------------------------------------------------|
| `codehub`        | every worker                     | workflows, with their reconciles                       |
| `codehub`        | workers of the node `local` only | its operations: on the workflow's own queue they begin |
|                  |                                  | without a round trip, so one host costs nothing more   |
| `node-{name}`    | workers of that node             | its operations, and looks that others ask for          |
| `codehub-chores` | every worker                     | TTL and GC                                             |
"""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from domain.naming import DEFAULT_NODE, node_queue
from workflows.gc import GcWorkflow
from workflows.messages import CHORES_QUEUE
from workflows.registry import WORKFLOWS
from workflows.ttl import TtlWorkflow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from worker import Parts


@asynccontextmanager
async def polling(parts: "Parts") -> "AsyncIterator[None]":
    """On leaving, operations under way finish or go to another worker."""
    workers = [_workflows(parts)]
    if parts.node != DEFAULT_NODE:
        workers.append(_node(parts))
    if parts.activities:
        workers.append(_chores(parts))
    async with AsyncExitStack() as stack:
        for worker in workers:
            await stack.enter_async_context(worker)
        try:
            yield
        finally:
            # Side by side: one after the other, each would take its time.
            await asyncio.gather(*(worker.shutdown() for worker in workers))


def _workflows(parts: "Parts") -> Worker:
    reconciler = parts.operator.reconciler
    here = parts.node == DEFAULT_NODE
    return Worker(
        parts.client,
        task_queue=parts.task_queue,
        # TTL and GC of a version that ran them here may still be under way.
        workflows=WORKFLOWS,
        activities=[
            reconciler.reconcile,
            reconciler.fail,
            *(parts.operator.activities() if here else []),
            *(parts.activities if here else ()),
        ],
        no_remote_activities=not here,
        workflow_runner=UnsandboxedWorkflowRunner(),
        max_concurrent_workflow_tasks=parts.settings.worker_max_concurrent_workflow_tasks,
        max_concurrent_local_activities=parts.settings.worker_max_concurrent_activities,
        max_cached_workflows=parts.settings.worker_max_cached_workflows,
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=parts.settings.worker_sticky_timeout),
        **_common(parts),
    )


def _node(parts: "Parts") -> Worker:
    return Worker(
        parts.client,
        task_queue=node_queue(parts.node),
        activities=[parts.operator.reconciler.reconcile, *parts.operator.activities()],
        **_common(parts),
    )


def _chores(parts: "Parts") -> Worker:
    """Few and rare: nothing is kept ready for them."""
    return Worker(
        parts.client,
        task_queue=CHORES_QUEUE,
        workflows=[GcWorkflow, TtlWorkflow],
        activities=list(parts.activities),
        workflow_runner=UnsandboxedWorkflowRunner(),
        max_cached_workflows=0,
        max_concurrent_workflow_tasks=2,
        max_concurrent_workflow_task_polls=1,
        max_concurrent_activity_task_polls=1,
        **_common(parts),
    )


def _common(parts: "Parts") -> dict[str, Any]:
    return {
        "max_concurrent_activities": parts.settings.worker_max_concurrent_activities,
        "graceful_shutdown_timeout": timedelta(seconds=parts.settings.worker_drain_seconds),
        # Without one, the SDK hashes every loaded module: seconds, at each start.
        "build_id": f"codehub-{version('codehub')}",
    }
