"""A scripted world for the workflow: steps come from the test, what it does is written down."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

from domain.model import DesiredState, Operation, OperationId, Phase, UserId
from workflows.messages import FailInput, OperateInput, ReconcileInput, Status, Step, StepKind
from workflows.registry import sandbox
from workflows.workspace import WorkspaceWorkflow

OPERATION_ID = OperationId("op-1")
STATUS = Status(Phase.STANDBY, Operation.NONE, DesiredState.RUNNING, UserId("alice"), "api")
WAIT = Step(StepKind.WAIT, STATUS, wait_seconds=3600)
GONE = Step(StepKind.GONE, STATUS)
GO_ON = Step(StepKind.ASK)
"""What reconcile answers whoever is woken while it waits for a node that lives."""
LOST_AFTER = 0.3
"""The heartbeat of attempts that are to be lost: any other may be as late as a busy machine makes it."""


def run_step(operation: Operation = Operation.STARTING, timeout: float = 300, heartbeat: float = 60) -> Step:
    return Step(StepKind.RUN, STATUS, operation, OPERATION_ID, timeout_seconds=timeout, heartbeat_seconds=heartbeat)


@dataclass
class Script:
    """`steps` are what reconcile returns, the last one for ever; `operate` is the operation's body."""

    steps: list[Step]
    operate: Callable[[int], Awaitable[Step]] | None = None
    reconciles: list[ReconcileInput] = field(default_factory=list)
    failures: list[FailInput] = field(default_factory=list)
    attempts: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @activity.defn(name="reconcile")
    async def reconcile(self, request: ReconcileInput) -> Step:
        self.reconciles.append(request)
        self.changed.set()
        return self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]

    @activity.defn(name="fail")
    async def fail(self, request: FailInput) -> None:
        self.failures.append(request)

    @activity.defn(name="STARTING")
    async def starting(self, request: OperateInput) -> Step:
        assert request.op_id == OPERATION_ID
        self.attempts += 1
        assert self.operate is not None
        return await self.operate(self.attempts)

    def worker(self, client: Client, queue: str) -> Worker:
        return Worker(
            client,
            task_queue=queue,
            workflows=[WorkspaceWorkflow],
            activities=[self.reconcile, self.fail, self.starting],
            workflow_runner=sandbox(),
        )

    async def until(self, condition: Callable[[], bool], seconds: float = 20) -> None:
        async with asyncio.timeout(seconds):
            while not condition():
                self.changed.clear()
                await asyncio.wait([asyncio.ensure_future(self.changed.wait())], timeout=0.05)
