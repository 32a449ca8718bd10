"""PROMISE 15: data → meta → verify → archive_key → volume, seen from the outside: what the store was asked, what the
database says about its rows, what the engine reports. CI: 10 archives under faults; full: 100."""

import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

import pytest
from docker import APIClient

from adapters.s3.client import S3Config
from adapters.s3.store import open_store
from domain.errors import Unreachable
from domain.model import DesiredState, Phase, WorkspaceId
from domain.naming import archive_key, volume_name
from tests.archive.bench import Bench
from tests.faults.faulty import faulty
from tests.faults.s3_proxy import S3Proxy

pytestmark = pytest.mark.docker

TRIGGER = """
CREATE TABLE seen_keys (workspace_id uuid, archive_key text, at timestamptz);
CREATE FUNCTION see_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO seen_keys VALUES (NEW.id, NEW.archive_key, clock_timestamp());
    RETURN NULL;
END $$;
CREATE TRIGGER see_key AFTER UPDATE OF archive_key ON workspaces FOR EACH ROW
    WHEN (NEW.archive_key IS DISTINCT FROM OLD.archive_key) EXECUTE FUNCTION see_key();
"""
FAULTS = [
    ("POST", "uploads"),
    ("PUT", "partNumber"),
    ("POST", "uploadId"),
    ("PUT", ".meta"),
    ("GET", ".meta"),
    ("GET", "home.tar.zst"),
    ("HEAD", "home.tar.zst"),
]


@asynccontextmanager
async def proxied(bench: Bench, config: S3Config) -> AsyncIterator[tuple[Bench, S3Proxy]]:
    async with S3Proxy(config.endpoint) as proxy, open_store(replace(config, endpoint=proxy.url)) as store:
        yield bench.with_parts(archives=store), proxy


@pytest.mark.parametrize("count", [10, pytest.param(100, marks=[pytest.mark.full, pytest.mark.timeout(900)])])
async def test_the_order_holds_under_faults_and_retries(
    bench: Bench, s3_config: S3Config, docker_host: str, count: int
) -> None:
    """0 violations, whichever call failed before or after its effect on the way."""
    await bench.database.execute(TRIGGER)
    done: list[tuple[WorkspaceId, str]] = []
    removals: dict[str, float] = {}
    async with proxied(bench, s3_config) as (other, proxy):
        for seed in range(count):
            began = time.time()
            done.append(await archive_with_a_fault(other, proxy, seed))
            # One by one: the engine remembers its last 256 events, and other tests make some, too.
            removals |= dict(removed(docker_host, began))
    for workspace, key in done:
        await in_order(bench, proxy, workspace, key, removals[volume_name(workspace)])


async def archive_with_a_fault(bench: Bench, proxy: S3Proxy, seed: int) -> tuple[WorkspaceId, str]:
    chance = random.Random(seed)
    workspace, _ = await bench.workspace(_fill)
    step = await bench.claim(workspace, DesiredState.ARCHIVED)
    method, contains = chance.choice(FAULTS)
    # Three times is what the client tries by itself: the fourth is another attempt's.
    proxy.fail(500, method=method, contains=contains, times=chance.choice([1, 3]), after=chance.random() < 0.5)
    runner = bench
    if chance.random() < 0.5:
        homes, faults = faulty(bench.homes)
        faults.fail("remove", Unreachable("lost"), after=chance.random() < 0.5)
        runner = bench.with_parts(homes=homes)
    assert await runner.operate(workspace, step) is None
    proxy.heal()
    row = await bench.drive(workspace, Phase.ARCHIVED)
    assert row.archive_key == archive_key(workspace, step.op_id)
    return workspace, row.archive_key


async def in_order(bench: Bench, proxy: S3Proxy, workspace: WorkspaceId, key: str, removed_at: float) -> None:
    calls = [call for call in proxy.calls if call.key.startswith(key) and call.status < 300]
    data = max(call.ended for call in calls if call.what == "complete")
    meta = max(call.ended for call in calls if call.what == "write_meta")
    meta_began = max(call.began for call in calls if call.what == "write_meta")
    read_back = max(call.ended for call in calls if call.what == "read_data")
    read_began = max(call.began for call in calls if call.what == "read_data")
    keys = await bench.database.fetch(
        "SELECT archive_key, extract(epoch FROM at)::float8 AS at FROM seen_keys WHERE workspace_id = $1", workspace
    )
    assert [found["archive_key"] for found in keys] == [key]
    assert data <= meta_began <= meta <= read_began <= read_back <= keys[0]["at"] <= removed_at
    # And nothing has touched the archive since.
    late = [call for call in calls if call.ended > keys[0]["at"] and call.method not in {"GET", "HEAD"}]
    assert late == []


def removed(docker_host: str, since: float) -> Iterator[tuple[str, float]]:
    """When each volume went until now, by the engine's own account."""
    kind = {"type": "volume"}
    with closing(APIClient(docker_host)) as api:
        # In fractions of a second, which only the types don't know of: a whole second would have to be waited for.
        for event in api.events(since=since, until=time.time(), filters=kind, decode=True):  # type: ignore[call-overload]
            if event["Action"] == "destroy":
                yield event["Actor"]["ID"], event["timeNano"] / 1e9


async def test_the_volume_of_a_failed_archiving_is_never_removed(bench: Bench, s3_config: S3Config) -> None:
    """Whatever step fails for good before archive_key is saved."""
    for method, contains in FAULTS:
        async with proxied(bench, s3_config) as (other, proxy):
            workspace, before = await bench.workspace(_fill)
            step = await other.claim(workspace, DesiredState.ARCHIVED)
            proxy.fail(403, method=method, contains=contains, code="AccessDenied")
            assert await other.operate(workspace, step) is not None
            assert (await bench.row(workspace)).archive_key is None
            assert bench.home(workspace) == before
            proxy.heal()


def _fill(home: Path) -> None:
    (home / "file").write_text("x" * 5000)
