"""Rows that contradict themselves, their operation log or each other. CHECK constraints make most of them
impossible; this looks at what spans conditions and tables, in one snapshot (PROMISE 12)."""

from adapters.postgres.database import Database

_CONDITION = "COALESCE(w.conditions -> '{name}' ->> 'status' = 'True', false)"
_VOLUME = _CONDITION.format(name="storage.volume_ready")
_CONTAINER = _CONDITION.format(name="infra.container_ready")

CONTRADICTIONS = {
    "an operation under way that the log does not have as under way": """
        w.operation <> 'NONE' AND NOT EXISTS (
            SELECT FROM operations o WHERE o.id = w.op_id AND o.workspace_id = w.id
            AND o.operation = w.operation AND o.outcome IS NULL)""",
    "an operation under way in the log only": """
        EXISTS (SELECT FROM operations o WHERE o.workspace_id = w.id AND o.outcome IS NULL
                AND o.id IS DISTINCT FROM w.op_id)""",
    "ERROR without a reason": "w.phase = 'ERROR' AND w.error_reason IS NULL",
    "ERROR before the attempts were used up": """
        w.phase = 'ERROR' AND w.error_count < 3
        AND w.error_reason IN ('RetryExceeded', 'ActionFailed', 'Unreachable')""",
    "failures counted for no operation": "w.error_count > 0 AND w.operation = 'NONE' AND w.phase <> 'ERROR'",
    "RUNNING without what makes it so": f"""
        w.phase = 'RUNNING' AND NOT ({_VOLUME} AND {_CONTAINER} AND w.node IS NOT NULL)""",
    "STANDBY without its volume": f"w.phase = 'STANDBY' AND NOT ({_VOLUME} AND w.node IS NOT NULL)",
    "STANDBY with a container": f"w.phase = 'STANDBY' AND {_CONTAINER}",
    "ARCHIVED or PENDING with a volume": f"w.phase IN ('ARCHIVED', 'PENDING') AND {_VOLUME}",
    "PENDING though it was archived": "w.phase = 'PENDING' AND w.operation = 'NONE' AND w.archive_key IS NOT NULL",
    "a home that is both restored and under restore": """
        w.home_ctx ->> 'restoring' IS NOT NULL AND w.home_ctx ->> 'restore_marker' IS NOT NULL""",
}


async def contradictions(database: Database) -> list[str]:
    """None during a storm without a recover: that one leaves ERROR's reason empty until the next reconcile."""
    cases = " UNION ALL ".join(
        f"SELECT {number} AS number, w.* FROM workspaces w WHERE {rule}"
        for number, rule in enumerate(CONTRADICTIONS.values())
    )
    names = list(CONTRADICTIONS)
    return [f"{names[row['number']]}: {dict(row)}" for row in await database.fetch(cases)]


async def unsettled(database: Database) -> list[str]:
    """What is not at rest where it was wanted, with no error on the way."""
    rows = await database.fetch(
        "SELECT id, phase, desired_state, operation, error_reason, error_count, op_started_at FROM workspaces"
        " WHERE phase <> desired_state OR operation <> 'NONE' OR error_count <> 0"
    )
    return [str(dict(row)) for row in rows]


async def failures(database: Database) -> list[str]:
    """Operations that did not succeed, from the log."""
    rows = await database.fetch("SELECT * FROM operations WHERE outcome = 'FAILED'")
    return [str(dict(row)) for row in rows]
