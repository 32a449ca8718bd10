"""The check that others go by has to see something: a row for each contradiction, which PostgreSQL would refuse."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from adapters.postgres.database import Database
from domain.model import ConditionName
from tests.harness.rows import CONTRADICTIONS, contradictions

TRUE = {"status": "True", "reason": "", "message": "", "last_transition_time": "2026-01-01T00:00:00+00:00"}
VOLUME = {ConditionName.VOLUME_READY: TRUE}
BOTH = {**VOLUME, ConditionName.CONTAINER_READY: TRUE}
OP = UUID(int=7)
RUNNING = {"phase": "RUNNING", "node": "here", "conditions": BOTH}
STANDBY = {"phase": "STANDBY", "node": "here", "conditions": VOLUME}
STARTING = {**STANDBY, "operation": "STARTING", "op_id": OP, "op_started_at": "now"}
LOGGED: dict[str, Any] = {"id": OP, "operation": "STARTING", "outcome": None}

RIGHT: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
    ({}, []),
    (RUNNING, []),
    (STANDBY, [{**LOGGED, "outcome": "SUCCEEDED"}]),
    (STARTING, [LOGGED]),
    ({**STARTING, "error_count": 2}, [LOGGED]),
    ({"phase": "ARCHIVED", "archive_key": "a", "home_ctx": {"restoring": "a"}}, []),
    ({"phase": "ERROR", "error_reason": "DataLost", "error_count": 1}, []),
    ({"phase": "ERROR", "error_reason": "Unreachable", "error_count": 3}, []),
]
WRONG: list[tuple[str, dict[str, Any], list[dict[str, Any]]]] = [
    ("an operation under way that the log does not have as under way", STARTING, []),
    (
        "an operation under way that the log does not have as under way",
        STARTING,
        [{**LOGGED, "outcome": "SUCCEEDED"}],
    ),
    ("an operation under way that the log does not have as under way", STARTING, [{**LOGGED, "operation": "STOPPING"}]),
    ("an operation under way in the log only", STANDBY, [LOGGED]),
    ("an operation under way in the log only", STARTING, [{**LOGGED, "id": UUID(int=8)}]),
    ("ERROR without a reason", {"phase": "ERROR"}, []),
    (
        "ERROR before the attempts were used up",
        {"phase": "ERROR", "error_reason": "Unreachable", "error_count": 2},
        [],
    ),
    ("failures counted for no operation", {**STANDBY, "error_count": 1}, []),
    ("RUNNING without what makes it so", {**RUNNING, "conditions": VOLUME}, []),
    ("RUNNING without what makes it so", {**RUNNING, "node": None}, []),
    ("STANDBY without its volume", {**STANDBY, "conditions": {}}, []),
    ("STANDBY with a container", {**STANDBY, "conditions": BOTH}, []),
    ("ARCHIVED or PENDING with a volume", {"phase": "ARCHIVED", "archive_key": "a", "conditions": VOLUME}, []),
    ("PENDING though it was archived", {"archive_key": "a"}, []),
    (
        "a home that is both restored and under restore",
        {"phase": "ARCHIVED", "archive_key": "a", "home_ctx": {"restoring": "a", "restore_marker": "a"}},
        [],
    ),
]


@pytest.fixture
async def lenient(database: Database) -> Database:
    """Nothing is refused here: what the constraints make impossible is looked for all the same."""
    for row in await database.fetch(
        "SELECT conrelid::regclass::text AS on, conname FROM pg_constraint"
        " WHERE contype = 'c' AND conrelid IN ('workspaces'::regclass, 'operations'::regclass)"
    ):
        await database.execute(f'ALTER TABLE {row["on"]} DROP CONSTRAINT "{row["conname"]}"')
    return database


async def test_each_contradiction_is_found(lenient: Database) -> None:
    """PROMISE 12: all that is looked for, each alone among rows that are right."""
    assert {name for name, _, _ in WRONG} == CONTRADICTIONS.keys(), "one is looked for that nobody planted"
    for row, log in RIGHT:
        await _plant(lenient, row, log)
        assert await contradictions(lenient) == []
        await lenient.execute("DELETE FROM operations")
    for name, row, log in WRONG:
        planted = await _plant(lenient, row, log)
        found = await contradictions(lenient)
        assert any(one.startswith(f"{name}: ") and str(planted) in one for one in found), f"{name} of {row}: {found}"
        await lenient.execute("DELETE FROM operations")
        await lenient.execute("DELETE FROM workspaces WHERE id = $1", planted)


async def _plant(database: Database, row: dict[str, Any], log: list[dict[str, Any]]) -> UUID:
    await database.execute("DELETE FROM workspaces WHERE operation <> 'NONE'")
    planted = uuid4()
    given = {"phase": "PENDING", "operation": "NONE", "error_count": 0, "conditions": {}, "home_ctx": {}, **row}
    await database.execute(
        "INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state, phase, operation, op_id,"
        " op_started_at, error_reason, error_count, conditions, home_ctx, archive_key, node)"
        " VALUES ($1::uuid, $2, $1::uuid::text, 'i', 'RUNNING', $3, $4, $5,"
        " CASE WHEN $5::uuid IS NOT NULL THEN now() END,"
        " $6, $7, $8, $9, $10, $11)",
        planted,
        UUID(int=1),
        *(given.get(name) for name in ("phase", "operation", "op_id", "error_reason", "error_count")),
        *(given.get(name) for name in ("conditions", "home_ctx", "archive_key", "node")),
    )
    for one in log:
        await database.execute(
            "INSERT INTO operations (id, workspace_id, operation, previous_phase, started_at, outcome, finished_at)"
            " VALUES ($1, $2, $3, 'STANDBY', now(), $4, CASE WHEN $4::text IS NOT NULL THEN now() END)",
            one["id"],
            planted,
            one["operation"],
            one["outcome"],
        )
    return planted
