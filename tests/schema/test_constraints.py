"""Contradictory rows are impossible: PostgreSQL itself refuses them, whoever writes (issue 2)."""

import asyncio
import random
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import asdict
from datetime import timedelta
from enum import StrEnum
from itertools import product
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from adapters.postgres.database import Database, open_database
from domain.model import DesiredState, ErrorReason, HomeContext, Operation, Phase
from tests.conftest import own_database
from tests.domain.rows import NOW, row, violated_checks

ALICE, WORKSPACE, OPERATION = (UUID(int=number) for number in (1, 2, 3))
BUSY = "op_id = gen_random_uuid(), op_started_at = now()"
DELETED = "desired_state = 'DELETED', deleted_at = now()"

# Each breaks the constraint of that name and no other: a good row, changed.
WORKSPACES = {
    "workspaces_name_check": "name = ''",
    "workspaces_description_check": "description = repeat('x', 1001)",
    "workspaces_memo_check": "memo = repeat('x', 10001)",
    "workspaces_image_ref_check": "image_ref = ''",
    "workspaces_desired_state_check": "desired_state = 'PENDING'",
    "workspaces_standby_ttl_seconds_check": "standby_ttl_seconds = -1",
    "workspaces_archive_ttl_seconds_check": "archive_ttl_seconds = -1",
    "workspaces_phase_check": "phase = 'ASLEEP'",
    "workspaces_operation_check": f"operation = 'RESTARTING', {BUSY}",
    "workspaces_error_reason_check": "phase = 'ERROR', error_reason = 'BadLuck'",
    "workspaces_error_count_check": "error_count = -1",
    "operation_has_start": "operation = 'STARTING', op_id = gen_random_uuid()",
    "error_has_no_operation": f"phase = 'ERROR', operation = 'STARTING', {BUSY}",
    "reason_is_in_error": "error_reason = 'Timeout'",
    "deleted_is_desired": "desired_state = 'DELETED'",
    "deletion_was_asked": "phase = 'DELETED'",
    "deleted_is_at_rest": f"phase = 'DELETED', operation = 'DELETING', {BUSY}, {DELETED}",
    "archiving_has_archive_op_id": f"operation = 'ARCHIVING', {BUSY}",
    "restoring_is_marked": f"operation = 'RESTORING', {BUSY}, archive_key = 'key'",
    "restoring_has_archive_key": """home_ctx = '{"restoring": "key"}'""",
    "deleting_was_asked": f"operation = 'DELETING', {BUSY}",
    "provisioning_has_no_archive": f"operation = 'PROVISIONING', {BUSY}, archive_key = 'key'",
    "archived_has_archive_key": "phase = 'ARCHIVED'",
}
OTHERS = {
    "operations_operation_check": "UPDATE operations SET operation = 'NONE'",
    "operations_previous_phase_check": "UPDATE operations SET previous_phase = 'ASLEEP'",
    "operations_error_reason_check": "UPDATE operations SET error_reason = 'BadLuck'",
    "operations_outcome_check": "UPDATE operations SET outcome = 'LOST', finished_at = now()",
    "finished_has_outcome": "UPDATE operations SET finished_at = now()",
    "users_username_check": "UPDATE users SET username = 'Alice Smith'",
    "api_tokens_name_check": "INSERT INTO api_tokens (user_id, name, token_hash) SELECT id, '', sha256('') FROM users",
    "api_tokens_token_hash_check": "INSERT INTO api_tokens (user_id, name, token_hash) SELECT id, 'x', '' FROM users",
    "login_failures_scope_check": "INSERT INTO login_failures VALUES ('city', 'x', 1, now())",
    "login_failures_failures_check": "INSERT INTO login_failures VALUES ('account', 'x', -1, now())",
    "idempotency_keys_key_check": "INSERT INTO idempotency_keys SELECT id, '', '', id FROM users",
    "gc_state_single_check": "INSERT INTO gc_state (single) VALUES (false)",
    "installation_single_check": "INSERT INTO installation (single) VALUES (false)",
    "name_is_a_queue": "INSERT INTO nodes (name, engine_id) VALUES ('Host 1', 'e')",
    "nodes_capacity_check": "INSERT INTO nodes (name, engine_id, capacity) VALUES ('a', 'e', 0)",
    "drained_is_cordoned": (
        "INSERT INTO nodes (name, engine_id, drain_started_at, drain_homes) VALUES ('a', 'e', now(), 1)"
    ),
    "drain_has_count": "INSERT INTO nodes (name, engine_id, drain_homes) VALUES ('a', 'e', 1)",
    "audit_subject_check": (
        "INSERT INTO audit (subject, subject_id, actor_kind, action) VALUES ('city', gen_random_uuid(), 'user', 'x')"
    ),
}
BROKEN = {**{name: f"UPDATE workspaces SET {change}" for name, change in WORKSPACES.items()}, **OTHERS}

VOCABULARY: Mapping[str, AbstractSet[StrEnum]] = {
    "workspaces_phase_check": set(Phase),
    "workspaces_desired_state_check": set(DesiredState),
    "workspaces_operation_check": set(Operation),
    "workspaces_error_reason_check": set(ErrorReason),
    "operations_operation_check": set(Operation) - {Operation.NONE},
    "operations_previous_phase_check": set(Phase),
    "operations_error_reason_check": set(ErrorReason),
}

_DEFINITIONS = """
SELECT conname, pg_get_expr(conbin, conrelid) AS expression, convalidated FROM pg_constraint
WHERE contype = 'c' AND connamespace = 'public'::regnamespace
"""


_GOOD = f"""
INSERT INTO users (id, username, password_hash) VALUES ('{ALICE}', 'alice', '');
INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state, phase)
VALUES ('{WORKSPACE}', '{ALICE}', 'demo', 'image', 'RUNNING', 'STANDBY');
INSERT INTO operations (id, workspace_id, operation, previous_phase, started_at)
VALUES ('{OPERATION}', '{WORKSPACE}', 'STARTING', 'STANDBY', now());
"""


@pytest.fixture(scope="module")
def shared_url(postgres_url: str, database_template: str) -> Iterator[str]:
    """One for all tests here: what they try is refused, and leaves nothing."""
    made = own_database(postgres_url, f'TEMPLATE "{database_template}"')
    with asyncio.Runner() as runner:
        url = runner.run(made.__aenter__())
        yield url
        runner.run(made.__aexit__(None, None, None))


@pytest.fixture
async def database(shared_url: str) -> AsyncIterator[Database]:
    opened = await open_database(shared_url)
    yield opened
    await opened.close()


@pytest.mark.parametrize("constraint", BROKEN)
async def test_a_contradictory_row_is_refused(database: Database, constraint: str) -> None:
    """A workspace at rest and an operation in its log are taken; changed like this, they are not."""
    async with database.transaction() as connection:
        await connection.execute(_GOOD)
        with pytest.raises(asyncpg.CheckViolationError) as refused:
            await connection.execute(BROKEN[constraint])
    assert refused.value.constraint_name == constraint


async def test_every_constraint_is_tried(database: Database) -> None:
    """And all of them hold for all rows: none was left NOT VALID."""
    found = {definition["conname"]: definition["convalidated"] for definition in await database.fetch(_DEFINITIONS)}
    assert found == dict.fromkeys(BROKEN, True)


async def test_the_words_are_those_of_the_rules(database: Database) -> None:
    """A phase, operation or reason that the rules know is known to PostgreSQL, and no other."""
    definitions = {row["conname"]: row["expression"] for row in await database.fetch(_DEFINITIONS)}
    words = {name: set(re.findall(r"'(\w+)'::text", definitions[name])) for name in VOCABULARY}
    assert words == VOCABULARY


async def test_the_rules_know_what_postgresql_would_refuse(database: Database) -> None:
    """The copy that the tests of the rules go by says the same as PostgreSQL, about thousands of rows."""
    definitions = {row["conname"]: row["expression"] for row in await database.fetch(_DEFINITIONS)}
    named = [name for name in WORKSPACES if not name.startswith("workspaces_")]
    broken = ", ".join(f"({definitions[name]}) IS FALSE AS {name}" for name in named)
    sample = random.Random(2).sample(_combinations(), 3000)
    told = await database.fetch(
        f"SELECT {broken} FROM jsonb_populate_recordset(NULL::workspaces, $1) WITH ORDINALITY",
        [_columns(changes) for changes in sample],
    )
    for changes, answer in zip(sample, told, strict=True):
        refused = [name for name, is_broken in answer.items() if is_broken]
        assert sorted(refused) == sorted(violated_checks(row(**changes))), changes
    assert {name for answer in told for name, is_broken in answer.items() if is_broken} == set(named)


def _combinations() -> list[dict[str, Any]]:
    """Rows of every kind, most of them impossible."""
    values: dict[str, list[Any]] = {
        "phase": list(Phase),
        "operation": list(Operation),
        "desired_state": list(DesiredState),
        "error_reason": [None, ErrorReason.TIMEOUT],
        "deleted_at": [None, NOW],
        "op_id": [None, str(OPERATION)],
        "op_started_at": [None, NOW - timedelta(seconds=1)],
        "archive_op_id": [None, str(OPERATION)],
        "archive_key": [None, "key"],
        "home_ctx": [HomeContext(), HomeContext(restoring="key"), HomeContext(restore_marker="key")],
    }
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]


def _columns(changes: dict[str, Any]) -> dict[str, Any]:
    plain = {name: value.isoformat() if hasattr(value, "isoformat") else value for name, value in changes.items()}
    kept = {name: value for name, value in asdict(changes["home_ctx"]).items() if value is not None}
    return {**plain, "home_ctx": kept}
