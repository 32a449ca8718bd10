"""When workspaces were last used, into their rows."""

from collections.abc import Mapping
from datetime import datetime

from adapters.postgres.database import Database
from domain.model import WorkspaceId
from domain.naming import is_workspace_id


async def touch(database: Database, seen: Mapping[WorkspaceId, datetime]) -> None:
    """`last_access_at` never goes back, and never into the future."""
    # What others left in Redis must not stop the tick. In one order for all who do this: two at once must not wait for
    # each other.
    known = {workspace_id: seen[workspace_id] for workspace_id in sorted(seen) if is_workspace_id(workspace_id)}
    await database.execute(
        "UPDATE workspaces w SET last_access_at = LEAST(now(), s.seen) FROM unnest($1::uuid[], $2::timestamptz[])"
        " AS s (id, seen) WHERE w.id = s.id AND (w.last_access_at IS NULL OR w.last_access_at < s.seen)",
        list(known),
        list(known.values()),
    )
