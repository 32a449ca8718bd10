"""PostgreSQL 16, as compose has it: the same migrations, statements and triggers as on the one that is embedded."""

import dataclasses
import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from adapters.postgres.desired_state import DesiredStates
from adapters.postgres.lock import current_holder, open_lock_connection, record_holder, try_lock
from adapters.postgres.migrate import migrate, migrations
from adapters.postgres.ttl import Expiry
from domain.audit import ActorKind
from domain.limits import Limits
from domain.model import DesiredState, WorkspaceId
from domain.ttl import TtlDefaults
from starter.embedded.postgres import Postgres
from starter.embedded.state import State
from starter.embedded.supervisor import Supervisor
from tests.api.world import serving
from tests.upgrade.recorder import STATEMENTS

FORMER = "pginstall/bin"
"""Of the wheel that has 18, too."""


@pytest.fixture
async def sixteen() -> AsyncIterator[str]:
    # Short and open for the user that the server runs as.
    with tempfile.TemporaryDirectory(prefix="codehub-pg16-") as folder:
        data = Path(folder)
        data.chmod(0o711)
        postgres = dataclasses.replace(
            Postgres.from_state(data, State(data)),
            programs=FORMER,
            locale=("--locale=C",),
            initdb_options=("--no-sync",),
            settings={"fsync": "off"},
        )
        supervisor = Supervisor(data)
        await supervisor.start(postgres.child())
        try:
            yield postgres.url
        finally:
            await supervisor.stop()


async def test_all_of_it_works_on_16(sixteen: str) -> None:
    """Every migration, every statement that is recorded, and a workspace's life with its triggers, its lock and its
    limits."""
    await migrate(sixteen)
    connection = await asyncpg.connect(sixteen, ssl=False)
    try:
        assert connection.get_server_version().major == 16
        assert await connection.fetchval("SELECT count(*) FROM schema_migrations") == len(migrations())
        for statement in json.loads(max(STATEMENTS.glob("*.json")).read_text()):
            await connection.prepare(statement)
    finally:
        await connection.close()

    async with serving(sixteen) as api:
        alice = await api.person("alice")
        workspace = WorkspaceId(await alice.workspace(archive_ttl_seconds=1))
        await api.row(workspace, phase="STANDBY")
        await api.deps.database.execute("UPDATE workspaces SET phase_changed_at = now() - interval '1 hour'")
        assert await Expiry(api.deps.database, TtlDefaults()).expire_standby() == [workspace]
        await DesiredStates(api.deps.database, Limits(1, 1)).set(workspace, DesiredState.RUNNING)
        assert (await alice("DELETE", f"/api/v1/workspaces/{workspace}")).status == 204
        changes, _ = await api.deps.audit.page(limit=10, offset=0, subject_id=workspace)
        assert [one.action for one in changes] == ["deleted", "desired_state", "desired_state", "created"]
        assert changes[2].actor_kind is ActorKind.TTL

        lock = await open_lock_connection(sixteen)
        try:
            assert await try_lock(lock, 12345)
            await record_holder(lock, "coordinator", "me")
            holder = await current_holder(api.deps.database, "coordinator", 12345)
            assert holder
            assert holder.alive
        finally:
            await lock.close()
