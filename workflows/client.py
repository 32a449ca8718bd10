"""How everything outside the workflows reaches them."""

from dataclasses import dataclass, field
from datetime import timedelta

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.service import RPCError

from domain.model import WorkspaceId
from domain.naming import workflow_id
from workflows.messages import TASK_QUEUE, WAKE, WORKSPACE_WORKFLOW, WorkspaceInput

_RPC_TIMEOUT = timedelta(seconds=5)


class TemporalUnavailable(Exception):
    """Temporal did not take the wake: what was recorded in PostgreSQL is carried out later all the same."""


@dataclass(frozen=True, slots=True)
class TemporalAddress:
    target: str
    namespace: str = "default"
    tls: bool = False
    api_key: str | None = field(default=None, repr=False)


async def connect(address: TemporalAddress, *, lazy: bool = False) -> Client:
    """With `lazy`, the connection is made by the first call: the API answers reads while Temporal is away."""
    return await Client.connect(
        address.target,
        namespace=address.namespace,
        tls=address.tls or address.api_key is not None,
        api_key=address.api_key,
        lazy=lazy,
    )


@dataclass(frozen=True, slots=True)
class Waker:
    client: Client
    task_queue: str = TASK_QUEUE

    async def wake(self, workspace_id: WorkspaceId) -> None:
        """Signal-with-start: a workflow that is missing heals itself. Raises TemporalUnavailable."""
        try:
            await self.client.start_workflow(
                WORKSPACE_WORKFLOW,
                WorkspaceInput(workspace_id),
                id=workflow_id(workspace_id),
                task_queue=self.task_queue,
                start_signal=WAKE,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                rpc_timeout=_RPC_TIMEOUT,
            )
        except (RPCError, RuntimeError) as error:
            raise TemporalUnavailable(f"Temporal did not take the wake: {error}") from error
