"""What a person asks for while an operation ends, on a real PostgreSQL."""

from datetime import timedelta
from typing import Any

from adapters.postgres.attention import Attention
from adapters.postgres.database import Database
from adapters.postgres.desired_state import DesiredStates
from adapters.postgres.workspaces import WorkspaceStore
from domain.judge import judge
from domain.limits import Limits
from domain.model import ErrorReason, OperationId, Phase, Workspace, WorkspaceId
from domain.observation import Observation, Presence, Resources
from tests.activities.test_ttl import workspace


class Late(DesiredStates):
    """The operation under way fails between the begin of a transaction and its lock on the row."""

    __slots__ = ()

    async def _locked(self, connection: Any, workspace_id: WorkspaceId, owner: Any) -> Workspace:
        store = WorkspaceStore(self.database)
        ws = await store.load(workspace_id)
        assert ws
        assert ws.op_id
        await store.fail(workspace_id, OperationId(ws.op_id), ErrorReason.TIMEOUT, "too long")
        return await DesiredStates._locked(self, connection, workspace_id, owner)


async def test_a_deletion_that_is_asked_for_while_an_operation_fails(database: Database) -> None:
    """It was acknowledged, so it is carried out: it is later than the failure, whenever its transaction began."""
    one = await workspace(database, operation="STOPPING", desired="STANDBY")
    deleted = await Late(database, Limits()).delete(one)
    assert (deleted.phase, deleted.error_reason) == (Phase.ERROR, ErrorReason.TIMEOUT)
    assert await Attention(database).unattended([one]) == [one]
    seen = Observation(Resources(volume=Presence.PRESENT))
    assert judge(deleted, seen, deleted.phase_changed_at).phase is Phase.DELETING


async def test_a_deletion_by_a_clock_that_was_set_back(database: Database) -> None:
    """The phase changed in what is the future now: a deletion in ERROR is heard all the same."""
    one = await workspace(database, since=-timedelta(minutes=1))
    await database.execute(
        "UPDATE workspaces SET phase = 'ERROR', error_reason = 'Timeout', error_count = 1 WHERE id = $1", one
    )
    await DesiredStates(database, Limits()).delete(one)
    assert await Attention(database).unattended([one]) == [one]
