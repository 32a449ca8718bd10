"""Idempotency keys of creates: claimed and answered in the transaction that creates."""

from dataclasses import dataclass

import asyncpg

from adapters.postgres.database import Database, PooledConnection
from domain.model import UserId, WorkspaceId

_FORGET = "DELETE FROM idempotency_keys WHERE user_id = $1 AND key = $2 AND created_at < now() - interval '24 hours'"

# A second request with the same key waits here until the first has committed or rolled back.
_CLAIM = """
INSERT INTO idempotency_keys (user_id, key, fingerprint, workspace_id) VALUES ($1, $2, $3, $4)
ON CONFLICT (user_id, key) DO NOTHING RETURNING true
"""

# The row as it was answered; columns added by a later version come from the row as it is.
_EARLIER = """
SELECT k.fingerprint = $3 AS same, (jsonb_populate_record(w, k.answer)).*
FROM idempotency_keys k JOIN workspaces w ON w.id = k.workspace_id
WHERE k.user_id = $1 AND k.key = $2
"""

_KEEP = """
UPDATE idempotency_keys k SET answer = to_jsonb(w) FROM workspaces w
WHERE k.user_id = $1 AND k.key = $2 AND w.id = k.workspace_id
"""


class IdempotencyMismatch(Exception):
    """The key was used for another request."""


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    key: str
    fingerprint: bytes


async def claim(
    connection: PooledConnection, owner: UserId, key: IdempotencyKey, workspace_id: WorkspaceId
) -> asyncpg.Record | None:
    """None: the key is ours, go on. A row: what was answered before. Raises IdempotencyMismatch."""
    await connection.execute(_FORGET, owner, key.key)
    if await connection.fetchval(_CLAIM, owner, key.key, key.fingerprint, workspace_id):
        return None
    earlier = await connection.fetchrow(_EARLIER, owner, key.key, key.fingerprint)
    if earlier is None or not earlier["same"]:
        raise IdempotencyMismatch
    return earlier


async def keep(connection: PooledConnection, owner: UserId, key: IdempotencyKey) -> None:
    await connection.execute(_KEEP, owner, key.key)


async def prune_idempotency_keys(database: Database) -> None:
    await database.execute("DELETE FROM idempotency_keys WHERE created_at < now() - interval '24 hours'")
