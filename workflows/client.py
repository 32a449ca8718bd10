"""How everything outside the workflows reaches them."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.runtime import Runtime
from temporalio.service import RPCError, RPCStatusCode, TLSConfig

from domain.model import WorkspaceId
from domain.naming import workflow_id
from workflows.codec import data_converter
from workflows.messages import TASK_QUEUE, WAKE, WORKSPACE_WORKFLOW, WorkspaceInput
from workflows.tracing import tracing_interceptors

_RPC_TIMEOUT = timedelta(seconds=5)
_AT_ONCE = 16
"""Wakes under way at a time: enough to hide the round trip, few enough not to crowd out anybody else's."""

_DETAILS = """Sleeps until it is woken: by a change of the desired state, by what was noticed at its node, or by its
safety timer. Each `reconcile` observes, judges, decides and saves; what has to be done follows as an activity named
after the operation. The memo says whose workspace it is, and the search attributes where it stands.
"""


class TemporalUnavailable(Exception):
    """Temporal did not take the wake: what was recorded in PostgreSQL is carried out later all the same."""


@dataclass(frozen=True, slots=True)
class TemporalAddress:
    target: str
    namespace: str = "default"
    tls: bool | TLSConfig = field(default=False, repr=False)
    api_key: str | None = field(default=None, repr=False)
    payload_keys: tuple[bytes, ...] = field(default=(), repr=False)
    """The first one encrypts what Temporal stores; none: nothing is encrypted."""


async def connect(address: TemporalAddress, *, lazy: bool = False, runtime: Runtime | None = None) -> Client:
    """With `lazy`, the connection is made by the first call: the API answers reads while Temporal is away."""
    return await Client.connect(
        address.target,
        namespace=address.namespace,
        tls=address.tls or address.api_key is not None,
        api_key=address.api_key,
        lazy=lazy,
        runtime=runtime,
        data_converter=data_converter(address.payload_keys),
        interceptors=tracing_interceptors(),
    )


@dataclass(frozen=True, slots=True)
class Waker:
    client: Client
    task_queue: str = TASK_QUEUE

    async def wake(self, workspace_id: WorkspaceId) -> None:
        """A workflow that is missing heals itself. Raises TemporalUnavailable."""
        # They have workflows, as a rule, and a signal alone costs a third less than one that may have to start.
        if not await self._signalled(workspace_id):
            await self.start(workspace_id)

    async def start(self, workspace_id: WorkspaceId) -> None:
        """As `wake`, of one that has no workflow, as far as is known: signal-with-start."""
        try:
            await self.client.start_workflow(
                WORKSPACE_WORKFLOW,
                WorkspaceInput(workspace_id),
                id=workflow_id(workspace_id),
                task_queue=self.task_queue,
                start_signal=WAKE,
                static_summary="A workspace: reality follows its desired state",
                static_details=_DETAILS,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                rpc_timeout=_RPC_TIMEOUT,
            )
        except (RPCError, RuntimeError) as error:
            raise TemporalUnavailable(f"Temporal did not take the wake: {error}") from error

    async def wake_all(self, workspaces: Iterable[WorkspaceId]) -> None:
        """Many, side by side. Raises TemporalUnavailable at the first that isn't taken; the others may not be sent."""
        gate = asyncio.Semaphore(_AT_ONCE)

        async def send(workspace_id: WorkspaceId) -> None:
            async with gate:
                await self.wake(workspace_id)

        try:
            async with asyncio.TaskGroup() as wakes:
                for workspace_id in workspaces:
                    wakes.create_task(send(workspace_id))
        except* TemporalUnavailable as failures:
            raise TemporalUnavailable(str(failures.exceptions[0])) from failures

    async def _signalled(self, workspace_id: WorkspaceId) -> bool:
        """False where no workflow runs."""
        try:
            await self.client.get_workflow_handle(workflow_id(workspace_id)).signal(WAKE, rpc_timeout=_RPC_TIMEOUT)
        except (RPCError, RuntimeError) as error:
            if isinstance(error, RPCError) and error.status is RPCStatusCode.NOT_FOUND:
                return False
            raise TemporalUnavailable(f"Temporal did not take the wake: {error}") from error
        return True
