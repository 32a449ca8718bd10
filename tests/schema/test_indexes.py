"""What runs again and again is answered by an index: its cost is what it finds, not all there is (issue 2)."""

import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
from asyncpg.connection import LoggedQuery

from adapters.postgres.attention import Attention
from adapters.postgres.audit import Audit
from adapters.postgres.catalog import Catalog
from adapters.postgres.database import Connection, Database, PooledConnection, _prepare
from adapters.postgres.desired_state import DesiredStates
from adapters.postgres.garbage import Garbage
from adapters.postgres.idempotency import prune_idempotency_keys
from adapters.postgres.lockout import Lockout
from adapters.postgres.nodes import Nodes
from adapters.postgres.overview import Overview
from adapters.postgres.placements import Placements
from adapters.postgres.sessions import Sessions
from adapters.postgres.starts import Starts
from adapters.postgres.ttl import Expiry
from adapters.postgres.workspaces import WorkspaceStore
from domain.limits import Limits
from domain.model import DesiredState, Phase, UserId, WorkspaceId
from domain.observation import ContainerState, Presence, Resources
from domain.pacing import MOST
from domain.plan import DEFAULT_TIMEOUTS
from domain.ttl import TtlDefaults

ROWS = 2000
SMALL = {"tallies", "nodes"}
"""Whatever the size of the fleet."""
SOME = [WorkspaceId(f"00000000-0000-0000-0000-{number:012x}") for number in range(1, 4)]
SEEN = {id_: Resources(ContainerState.READY, Presence.PRESENT) for id_ in SOME}
SOON = timedelta(seconds=5)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
TIMEOUTS = {operation.value: limit for operation, limit in DEFAULT_TIMEOUTS.items()}

# A fleet mostly at rest on three nodes; a few on their way, a few in error, the others deleted. Few are alice's.
FILL = f"""
INSERT INTO users (id, username, password_hash) VALUES
    ('00000000-0000-0000-0000-000000000000', 'alice', ''), ('00000000-0000-0000-0000-00000000000b', 'bob', '');
INSERT INTO nodes (name, engine_id) VALUES ('a', 'a'), ('b', 'b'), ('c', 'c');
UPDATE nodes SET cordoned_at = now(), drain_started_at = now(), drain_homes = 1 WHERE name = 'a';
ALTER TABLE workspaces DISABLE TRIGGER USER;
INSERT INTO workspaces (id, owner_user_id, name, image_ref, phase, desired_state, deleted_at, node, operation, op_id,
    op_started_at, archive_key, error_reason, last_access_at, phase_changed_at)
SELECT ('00000000-0000-0000-0000-' || lpad(to_hex(n), 12, '0'))::uuid,
    ('00000000-0000-0000-0000-00000000000' || CASE WHEN n % 10 < 2 THEN '0' ELSE 'b' END)::uuid, n::text,
    'image', CASE WHEN busy THEN 'STANDBY' WHEN n % 97 = 0 THEN 'ERROR' ELSE phase END,
    CASE phase WHEN 'DELETED' THEN 'DELETED' ELSE 'RUNNING' END::text,
    CASE phase WHEN 'DELETED' THEN now() END, chr(97 + n % 3),
    CASE WHEN busy THEN 'STARTING' ELSE 'NONE' END, CASE WHEN busy THEN gen_random_uuid() END,
    CASE WHEN busy THEN now() END, CASE phase WHEN 'ARCHIVED' THEN 'key' END,
    CASE WHEN n % 97 = 0 AND NOT busy THEN 'Unreachable' END, now() - n * interval '1 second',
    now() - n * interval '1 second'
FROM generate_series(1, {ROWS}) AS n,
    LATERAL (SELECT (ARRAY['RUNNING', 'STANDBY', 'ARCHIVED', 'DELETED'])[1 + n % 4] AS phase) AS p,
    LATERAL (SELECT n % 101 = 0 AND phase <> 'DELETED' AS busy) AS b;
UPDATE workspaces SET desired_state = phase WHERE phase IN ('STANDBY', 'ARCHIVED') AND operation = 'NONE';
INSERT INTO operations (id, workspace_id, operation, previous_phase, started_at)
SELECT op_id, id, operation, phase, op_started_at FROM workspaces WHERE operation <> 'NONE';
INSERT INTO operations (id, workspace_id, operation, previous_phase, started_at, finished_at, outcome, attempts)
SELECT gen_random_uuid(), id, 'STARTING', 'STANDBY', now(), now(), 'SUCCEEDED', 1 FROM workspaces;
INSERT INTO sessions (token_hash, user_id, expires_at)
SELECT sha256(n::text::bytea), '00000000-0000-0000-0000-000000000000', now() + n * interval '1 minute'
FROM generate_series(1, {ROWS}) AS n;
INSERT INTO login_failures (scope, subject, failures, counted_from)
SELECT 'account', n::text, 1, now() - n * interval '1 second' FROM generate_series(1, {ROWS}) AS n;
INSERT INTO idempotency_keys (user_id, key, fingerprint, workspace_id, created_at)
SELECT '00000000-0000-0000-0000-000000000000', n::text, '', gen_random_uuid(), now() - n * interval '10 seconds'
FROM generate_series(1, {ROWS}) AS n;
INSERT INTO gc_orphans (key, size, first_seen_at, run)
SELECT n::text, 1, now() - n * interval '10 seconds', 1 FROM generate_series(1, {ROWS}) AS n;
INSERT INTO audit (at, subject, subject_id, actor_kind, action)
SELECT now() - n * interval '1 hour', 'workspace', gen_random_uuid(), 'user', 'changed'
FROM generate_series(1, {ROWS}) AS n;
ANALYZE;
"""

ALICE = UserId("00000000-0000-0000-0000-000000000000")


def _catalog(database: Database) -> Catalog:
    return Catalog(database, DesiredStates(database, Limits(ROWS, ROWS)))


async def _start(database: Database) -> None:
    (asleep,) = await database.fetch("SELECT id FROM workspaces WHERE phase = 'STANDBY' AND operation = 'NONE' LIMIT 1")
    await _catalog(database).desired_states.set(WorkspaceId(str(asleep["id"])), DesiredState.RUNNING)


async def _everything(database: Database) -> None:
    assert [entry async for entry in _catalog(database).everything(ALICE, at_once=ROWS // 2)]


PERIODIC: Mapping[str, tuple[Callable[[Database], Awaitable[object]], set[str]]] = {
    "drifted": (lambda db: Attention(db).drifted("a", SEEN), {"workspaces_on_node"}),
    "drifted_among": (lambda db: Attention(db).drifted_among("a", SEEN), {"workspaces_pkey"}),
    "unattended": (lambda db: Attention(db).unattended(SOME), {"workspaces_pkey"}),
    "in_operation": (
        lambda db: Attention(db).in_operation(dict.fromkeys(SOME, SOON)),
        {"workspaces_pkey", "operations_log"},
    ),
    "stuck": (
        lambda db: Attention(db).stuck(SOON, TIMEOUTS),
        {"workspaces_unattended", "workspaces_in_operation"},
    ),
    "not_begun": (lambda db: Attention(db).not_begun(SOON), {"workspaces_in_operation", "operations_pkey"}),
    "living": (lambda db: Attention(db).living(), {"workspaces_living"}),
    "count_living": (lambda db: Attention(db).count_living(), {"workspaces_living"}),
    "deleted": (lambda db: Attention(db).deleted(SOME), {"workspaces_pkey"}),
    "failed_to_start": (
        lambda db: Attention(db).failed_to_start("a", SOME),
        {"workspaces_pkey", "operations_log"},
    ),
    "expire_running": (
        lambda db: Expiry(db, TtlDefaults()).expire_running(NOW),
        {"workspaces_unused_since", "workspaces_own_standby_ttl"},
    ),
    "expire_standby": (
        lambda db: Expiry(db, TtlDefaults()).expire_standby(),
        {"workspaces_asleep_since", "workspaces_own_archive_ttl"},
    ),
    "touch": (lambda db: Expiry(db, TtlDefaults()).touch(dict.fromkeys(SOME, NOW)), {"workspaces_pkey"}),
    "lost": (lambda db: Nodes(db).lost(), {"workspaces_on_node"}),
    "returned": (lambda db: Nodes(db).returned(), {"workspaces_unreachable"}),
    "send_off": (lambda db: Nodes(db).send_off("a", 4), {"workspaces_on_node", "workspaces_moving"}),
    "waiting": (lambda db: Placements(db).waiting(10), {"workspaces_waiting"}),
    "limits": (_start, {"workspaces_running", "workspaces_pkey"}),
    "deleted_since": (lambda db: _catalog(db).deleted_since(ALICE, NOW), {"workspaces_deleted"}),
    "everything": (_everything, {"workspaces_list"}),
    "page": (lambda db: _catalog(db).page(ALICE, limit=10, offset=0), {"workspaces_list"}),
    "admin page": (lambda db: Overview(db).page(limit=10, offset=0), {"workspaces_living", "workspaces_pkey"}),
    "admin page of errors": (
        lambda db: Overview(db).page(limit=10, offset=0, phase=Phase.ERROR),
        {"workspaces_living"},
    ),
    "admin page of a user": (lambda db: Overview(db).page(limit=10, offset=0, owner=ALICE), {"workspaces_list"}),
    "starts": (lambda db: Starts(db).latest(SOME[0], MOST), {"operations_log", "audit_subject"}),
    "ports": (lambda db: WorkspaceStore(db).ports_of_others(SOME[0], "a", [40000]), {"workspaces_on_node"}),
    "claims": (lambda db: Garbage(db).claims(SOME), {"workspaces_pkey"}),
    "matured": (lambda db: Garbage(db).matured(SOON, SOON, 10), {"gc_orphans_pkey"}),
    "sessions": (lambda db: Sessions(db).prune(), {"sessions_expiry"}),
    "lockout": (lambda db: Lockout(db).prune(), {"login_failures_old"}),
    "idempotency_keys": (prune_idempotency_keys, {"idempotency_keys_old"}),
    "audit": (lambda db: Audit(db).prune(), {"audit_at"}),
}
"""What loops, Schedules and people ask for again and again, and the indexes that it is for."""


async def test_what_runs_periodically_has_its_index(database_url: str) -> None:
    """Each statement's plan names the index that was made for it; no table that grows is read from end to end."""
    asked: list[LoggedQuery] = []

    async def prepare(connection: Connection) -> None:
        await _prepare(connection)
        connection.add_query_logger(asked.append)

    # On few rows, reading them all is cheapest: what is asked here is whether it could do otherwise.
    off = {"enable_seqscan": "off"}
    wrong = {}
    async with asyncpg.create_pool(database_url, min_size=0, max_size=2, init=prepare, server_settings=off) as pool:
        await pool.execute(FILL)
        explainer = await pool.acquire()
        for name, (ask, expected) in PERIODIC.items():
            asked.clear()
            await ask(Database(pool))
            nodes = [node for one in list(asked) for node in await _plan(explainer, one)]
            used = {node["Index Name"] for node in nodes if "Index Name" in node}
            read = {node["Relation Name"] for node in nodes if node["Node Type"] == "Seq Scan"} - SMALL
            if not expected <= used or read:
                wrong[name] = {"missing": expected - used, "used": used, "read from end to end": read}
        await pool.release(explainer)
    assert wrong == {}


async def test_what_changes_every_minute_is_in_no_index(database: Database) -> None:
    """A change of a column that an index knows of makes a new entry in every index of the row: `last_access_at` of all
    that are active, once a minute."""
    indexes = "SELECT indexdef FROM pg_indexes WHERE tablename = 'workspaces'"
    known = [row["indexdef"] for row in await database.fetch(indexes)]
    assert known
    assert [index for index in known if "last_access_at" in index or "observed_at" in index] == []


async def _plan(connection: PooledConnection, one: LoggedQuery) -> list[dict[str, Any]]:
    # Not what the pool says between two of its users.
    if ";" in one.query or not re.match(r"\s*(SELECT|WITH|UPDATE|DELETE)\b", one.query):
        return []
    (plan,) = json.loads(await connection.fetchval(f"EXPLAIN (FORMAT JSON) {one.query}", *one.args))
    return list(_nodes(plan["Plan"]))


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for inner in node.get("Plans", []):
        yield from _nodes(inner)
