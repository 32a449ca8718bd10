"""Operations without Temporal: the rules, the rows, the engine and the store are real, the test runs the attempts."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from temporalio.exceptions import ApplicationError

from activities.bucket import Bucket
from activities.operate import Operator
from activities.places import transfer_places
from activities.reconcile import Reconciler
from activities.transfer import Transfers
from adapters.archive_store import ArchiveStore
from adapters.homes import Homes
from adapters.postgres.database import Database
from adapters.postgres.desired_state import DesiredStates
from adapters.postgres.workspaces import WorkspaceStore
from adapters.runtime import Runtime
from domain.limits import Limits
from domain.model import DesiredState, ErrorReason, Phase, Workspace, WorkspaceId
from tests.archive.trees import Snapshot, snapshot
from tests.archive.volumes import Volumes
from worker import actuators
from workflows.messages import NO_PLACE, OperateInput, Step, StepKind

SOON = timedelta(milliseconds=1)


@dataclass
class Bench:
    """One worker's view of the world. `with_parts` gives another one's, with other parts, on the same rows."""

    database: Database
    runtime: Runtime
    homes: Homes
    archives: ArchiveStore
    volumes: Volumes
    stall_seconds: float = 30.0
    slots: int = 4
    store: WorkspaceStore = field(init=False)
    operator: Operator = field(init=False)
    transfers: Transfers = field(init=False)

    def __post_init__(self) -> None:
        self.store = WorkspaceStore(self.database)
        self._compose()

    def with_parts(
        self,
        *,
        store: WorkspaceStore | None = None,
        homes: Homes | None = None,
        archives: ArchiveStore | None = None,
        runtime: Runtime | None = None,
    ) -> "Bench":
        other = Bench(
            self.database,
            runtime or self.runtime,
            homes or self.homes,
            archives or self.archives,
            self.volumes,
            self.stall_seconds,
            self.slots,
        )
        if store is not None:
            other.store = store
            other._compose()
        return other

    @property
    def installation(self) -> str:
        return self.volumes.runtime.config.installation

    async def workspace(self, fill: Callable[[Path], None] | None = None) -> tuple[WorkspaceId, Snapshot]:
        """A workspace at STANDBY with a home, and what the home looks like."""
        workspace = await self.empty_workspace()
        await self.drive(workspace, Phase.STANDBY)
        home = self.volumes.path(workspace)
        if fill is not None:
            fill(home)
        return workspace, snapshot(home)

    async def empty_workspace(self) -> WorkspaceId:
        """One that never had a home: PENDING, and it is to be STANDBY."""
        workspace = self.volumes.name()
        owner = await self.database.fetchval(
            "INSERT INTO users (username, password_hash) VALUES ('alice', '')"
            " ON CONFLICT (username) DO UPDATE SET username = 'alice' RETURNING id"
        )
        await self.database.execute(
            "INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state)"
            " VALUES ($1, $2, $1::uuid::text, 'none', 'STANDBY')",
            workspace,
            owner,
        )
        return workspace

    async def archived(self, fill: Callable[[Path], None] | None = None) -> tuple[WorkspaceId, Snapshot]:
        workspace, before = await self.workspace(fill)
        await self.want(workspace, DesiredState.ARCHIVED)
        await self.drive(workspace, Phase.ARCHIVED)
        return workspace, before

    async def row(self, workspace: WorkspaceId) -> Workspace:
        found = await self.store.load(workspace)
        assert found is not None
        return found

    async def want(self, workspace: WorkspaceId, desired: DesiredState) -> None:
        await DesiredStates(self.database, Limits(1000, 1000)).set(workspace, desired)

    async def recover(self, workspace: WorkspaceId) -> None:
        await DesiredStates(self.database, Limits(1000, 1000)).recover(workspace)

    async def want_again(self, workspace: WorkspaceId) -> None:
        """A person accepts the error, and wants it to stay where it is for now."""
        await self.recover(workspace)
        await self.database.execute("UPDATE workspaces SET desired_state = 'ARCHIVED' WHERE id = $1", workspace)
        await self.operator.reconciler.step(workspace)

    async def claim(self, workspace: WorkspaceId, desired: DesiredState) -> Step:
        """The operation that leads there, claimed and not yet begun."""
        await self.want(workspace, desired)
        step = await self.operator.reconciler.step(workspace)
        assert step.kind is StepKind.RUN, step
        return step

    async def attempt(self, workspace: WorkspaceId, step: Step) -> Step:
        """One attempt. Raises ApplicationError as the activity would."""
        return await self.operator.run(step.operation, OperateInput(workspace, step.op_id))

    async def operate(self, workspace: WorkspaceId, step: Step) -> ErrorReason | None:
        """Attempts until it is done or has failed for good, as the workflow does; then the reason."""
        while True:
            try:
                await self.attempt(workspace, step)
            except ApplicationError as error:
                if error.type in {"Superseded", "DatabaseUnavailable", NO_PLACE}:
                    await asyncio.sleep(0.05)
                elif error.non_retryable:
                    reason = ErrorReason(str(error.type))
                    await self.store.fail(workspace, step.op_id, reason, error.message)
                    return reason
            else:
                return None

    async def drive(self, workspace: WorkspaceId, phase: Phase, steps: int = 10) -> Workspace:
        """Reconcile and operate until the workspace is there."""
        for _ in range(steps):
            step = await self.operator.reconciler.step(workspace)
            if step.kind is StepKind.RUN:
                await self.operate(workspace, step)
            row = await self.row(workspace)
            if row.phase is phase and row.op_id is None:
                return row
        raise AssertionError(f"not {phase}: {await self.row(workspace)}")

    def reach(self, reached: Callable[[str], Awaitable[None]]) -> None:
        """Call this at each named point of a transfer."""
        self._compose(reached)

    def home(self, workspace: WorkspaceId) -> Snapshot:
        return snapshot(self.volumes.path(workspace))

    def _compose(self, reached: Callable[[str], Awaitable[None]] | None = None) -> None:
        self.transfers = Transfers(
            self.store,
            stall_seconds=self.stall_seconds,
            report_seconds=0.1,
            reached=reached,
        )
        self.operator = Operator(
            Reconciler(self.store, self.runtime, self.archives),
            actuators(self.runtime, self.homes, Bucket(self.archives, self.installation), self.transfers),
            SOON,
            places=transfer_places(self.slots),
        )
