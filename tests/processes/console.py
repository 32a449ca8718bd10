"""What people ask for, done as the API does it: the row, then the wake. For tests that are not about the API."""

from contextlib import suppress
from dataclasses import dataclass
from uuid import uuid4

from adapters.postgres.database import Database
from adapters.postgres.desired_state import DesiredStates
from domain.limits import Limits
from domain.model import DesiredState, UserId, WorkspaceId
from workflows.client import TemporalAddress, TemporalUnavailable, Waker, connect


@dataclass(frozen=True)
class Console:
    database: Database
    user: UserId
    image: str
    waker: Waker

    @classmethod
    async def opened(cls, database: Database, env: dict[str, str]) -> "Console":
        user = await database.fetchval(
            "INSERT INTO users (username, password_hash) VALUES ('somebody', '') RETURNING id::text"
        )
        client = await connect(TemporalAddress(env["TEMPORAL_ADDRESS"], env["TEMPORAL_NAMESPACE"]), lazy=True)
        return cls(database, UserId(user), env["WORKSPACE_IMAGE"], Waker(client))

    async def create(
        self,
        desired: DesiredState = DesiredState.RUNNING,
        image: str | None = None,
        workspace: WorkspaceId | None = None,
    ) -> WorkspaceId:
        workspace = workspace or WorkspaceId(str(uuid4()))
        await self.database.execute(
            "INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state)"
            " VALUES ($1, $2, $1::uuid::text, $3, $4)",
            workspace,
            self.user,
            image or self.image,
            desired,
        )
        await self._wake(workspace)
        return workspace

    async def want(self, workspace: WorkspaceId, desired: DesiredState) -> None:
        await DesiredStates(self.database, Limits(1000, 1000)).set(workspace, desired)
        await self._wake(workspace)

    async def delete(self, workspace: WorkspaceId) -> None:
        await DesiredStates(self.database, Limits(1000, 1000)).delete(workspace)
        await self._wake(workspace)

    async def _wake(self, workspace: WorkspaceId) -> None:
        with suppress(TemporalUnavailable):
            await self.waker.wake(workspace)
