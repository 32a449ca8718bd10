"""The fleet in numbers: one query over all rows, for whoever looks, and none while nobody does."""

from dataclasses import dataclass, field
from datetime import datetime

from adapters.postgres.attention import AWAITED_SINCE
from adapters.postgres.database import Database

_FLEET = f"""
SELECT phase, operation, COALESCE(error_reason, '') AS error_reason, count(*) AS workspaces,
       extract(epoch FROM now() - min(op_started_at))::float8 AS oldest_operation,
       extract(epoch FROM now() - min({AWAITED_SINCE}) FILTER (
           WHERE operation = 'NONE' AND phase <> 'ERROR' AND phase <> desired_state))::float8 AS longest_wait
FROM workspaces WHERE phase <> 'DELETED' GROUP BY 1, 2, 3
"""  # noqa: S608 - constant
# Before its first run: since when there could have been one.
_GC = """
SELECT COALESCE(finished_at, (SELECT min(applied_at) FROM schema_migrations)) AS finished_at,
       COALESCE(hold_until > now(), false) AS held,
       (SELECT count(*) FROM gc_orphans) AS orphans, (SELECT COALESCE(sum(size), 0)::float8 FROM gc_orphans) AS bytes
FROM gc_state
"""

_NODES = """
SELECT count(*) FILTER (WHERE cordoned_at IS NULL) AS serving,
       count(*) FILTER (WHERE cordoned_at IS NOT NULL) AS cordoned,
       COALESCE(extract(epoch FROM now() - min(seen_at)), 0)::float8 AS silent
FROM nodes WHERE removed_at IS NULL
"""


@dataclass(slots=True)
class Fleet:
    phases: dict[str, int] = field(default_factory=dict)
    operations: dict[str, int] = field(default_factory=dict)
    oldest_operation: dict[str, float] = field(default_factory=dict)
    """Seconds since the oldest one of each kind began."""
    errors: dict[str, int] = field(default_factory=dict)
    longest_wait: float = 0.0
    """Seconds for which a workspace has not been where it is wanted, with nobody on the way."""
    gc_finished_at: datetime | None = None
    gc_held: bool = False
    gc_orphans: int = 0
    gc_orphan_bytes: float = 0.0
    nodes: dict[str, int] = field(default_factory=dict)
    longest_silence: float = 0.0
    """Seconds since the node that has been silent for longest was heard of."""


async def read_fleet(database: Database) -> Fleet:
    fleet = Fleet()
    for row in await database.fetch(_FLEET):
        _add(fleet.phases, row["phase"], row["workspaces"])
        if row["operation"] != "NONE":
            _add(fleet.operations, row["operation"], row["workspaces"])
            oldest = fleet.oldest_operation.get(row["operation"], 0.0)
            fleet.oldest_operation[row["operation"]] = max(oldest, row["oldest_operation"] or 0.0)
        if row["phase"] == "ERROR" and row["error_reason"]:
            _add(fleet.errors, row["error_reason"], row["workspaces"])
        fleet.longest_wait = max(fleet.longest_wait, row["longest_wait"] or 0.0)
    gc = await database.fetchrow(_GC)
    if gc is not None:
        fleet.gc_finished_at, fleet.gc_held = gc["finished_at"], gc["held"]
        fleet.gc_orphans, fleet.gc_orphan_bytes = gc["orphans"], gc["bytes"]
    nodes = await database.fetchrow(_NODES)
    if nodes is not None:
        fleet.nodes = {"serving": nodes["serving"], "cordoned": nodes["cordoned"]}
        fleet.longest_silence = max(0.0, nodes["silent"])
    return fleet


def _add(counts: dict[str, int], name: str, count: int) -> None:
    counts[name] = counts.get(name, 0) + count
