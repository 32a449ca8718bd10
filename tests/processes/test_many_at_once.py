"""Many woken at once, right after their worker was killed: the next one replays them all, and none of them stalls.

A worker that begins too many replays side by side runs into the ten seconds of a workflow task with each of them, and
starts over (docs/performance.md). The engine is in memory: what is waited for is codehub itself.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from temporalio.client import Client

from adapters.postgres.database import Database
from domain.model import DesiredState, WorkspaceId
from tests.conftest import S3
from tests.processes.deployment import QUICK
from tests.processes.process import CodehubProcess, until
from workflows.client import Waker

pytestmark = pytest.mark.timeout(900)

LONGEST = 60.0
"""Seconds that any of them may wait. Twice what is measured for five hundred on a quiet machine (`make bench`): several
tests run at once."""
AT_REST = 300.0

_MOVED = """
SELECT count(*) AS operations, extract(epoch FROM max(o.finished_at) - $2::timestamptz)::float8 AS seconds
FROM operations o WHERE o.workspace_id = ANY($1::uuid[]) AND o.operation = 'STARTING' AND o.outcome = 'SUCCEEDED'
GROUP BY o.workspace_id
"""


@dataclass
class Crowd:
    env: Mapping[str, str]
    folder: Path
    database: Database
    waker: Waker
    ids: list[WorkspaceId]
    workers: list[CodehubProcess]

    def start_worker(self) -> CodehubProcess:
        log = self.folder / f"worker-{len(self.workers)}.log"
        self.workers.append(CodehubProcess("local", self.env, log, "bench.memory_worker"))
        return self.workers[-1]

    async def make(self, count: int) -> None:
        owner = await self.database.fetchval(
            "INSERT INTO users (username, password_hash) VALUES ('a', '') RETURNING id"
        )
        self.ids = [WorkspaceId(str(uuid4())) for _ in range(count)]
        await self.database.execute(
            "INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state)"
            " SELECT id, $2, id::text, 'none', 'STANDBY' FROM unnest($1::uuid[]) AS new (id)",
            self.ids,
            owner,
        )
        await self.waker.wake_all(self.ids)
        await self.at_rest()

    async def want(self, desired: DesiredState) -> None:
        await self.database.execute("UPDATE workspaces SET desired_state = $1", desired)
        await self.waker.wake_all(self.ids)

    async def at_rest(self) -> None:
        async def is_so() -> bool:
            left = "SELECT count(*) FROM workspaces WHERE operation <> 'NONE' OR phase <> desired_state"
            return not await self.database.fetchval(left)

        await until(is_so, AT_REST, "some are still under way")


@pytest.fixture
async def crowd(
    database: Database, database_url: str, redis_url: str, s3: S3, temporal_client: Client, tmp_path: Path
) -> AsyncIterator[Crowd]:
    env = {
        **QUICK,
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "S3_ENDPOINT": s3.endpoint,
        "S3_ACCESS_KEY": s3.access_key,
        "S3_SECRET_KEY": s3.secret_key,
        "S3_BUCKET": s3.bucket,
        "TEMPORAL_ADDRESS": temporal_client.service_client.config.target_host,
        "TEMPORAL_NAMESPACE": temporal_client.namespace,
    }
    made = Crowd(env, tmp_path, database, Waker(temporal_client), [], [])
    yield made
    for worker in made.workers:
        worker.kill()


async def test_all_of_them_go_on_soon(crowd: Crowd) -> None:
    """Issue 7, short count: 100 at once after kill -9 of their only worker; none waits for longer than it may."""
    await _killed_and_woken(crowd, 100)


@pytest.mark.full
@pytest.mark.alone
async def test_five_hundred_go_on_soon(crowd: Crowd) -> None:
    """Issue 7: 500 at once after kill -9 of their only worker; none waits for longer than it may."""
    await _killed_and_woken(crowd, 500)


async def _killed_and_woken(crowd: Crowd, count: int) -> None:
    await crowd.start_worker().said("worker_ready")
    await crowd.make(count)
    crowd.workers[-1].kill()
    began = await crowd.database.fetchval("SELECT clock_timestamp()")
    await crowd.want(DesiredState.RUNNING)
    crowd.start_worker()
    await crowd.at_rest()
    moved = await crowd.database.fetch(_MOVED, crowd.ids, began)
    waits = sorted(row["seconds"] for row in moved)
    print(f"{count} at once: half of them within {waits[count // 2]:.1f} s, all within {waits[-1]:.1f} s")  # noqa: T201
    assert [row["operations"] for row in moved] == [1] * count, "each is started, and once only"
    assert waits[-1] < LONGEST, f"the longest waits: {waits[-10:]}"
