"""Numbers that are kept instead of counted: how many homes each node has, how many workspaces count against limits.

Triggers leave a line for each change (0016_tallies.sql); the sum of the lines is the number. Whoever reads many takes
them together into one a node, passing over those that somebody else is about to: so nobody waits here, whatever locks
they hold.
"""

from dataclasses import dataclass

import structlog

from adapters.postgres.database import Database, PooledConnection

log = structlog.get_logger()

_MANY = 200
"""Lines that are still read faster than they are taken together."""

_TOGETHER = """
WITH taken AS (
    DELETE FROM tallies WHERE id IN (SELECT id FROM tallies FOR UPDATE SKIP LOCKED)
    RETURNING node, homes, running, started
)
INSERT INTO tallies (node, homes, running, started)
SELECT node, sum(homes), sum(running), sum(started) FROM taken
GROUP BY node HAVING sum(homes) <> 0 OR sum(running) <> 0 OR sum(started) <> 0
"""


async def take_together(connection: PooledConnection, lines: int) -> None:
    """Where there are many. Each is taken by one transaction only, and is back if that one fails: the sum stays."""
    if lines > _MANY:
        await connection.execute(_TOGETHER)


@dataclass(frozen=True, slots=True)
class Tallies:
    database: Database

    async def recount(self) -> int:
        """Put right what went past the triggers; how many numbers were wrong."""
        async with self.database.transaction() as connection:
            corrected: int = await connection.fetchval("SELECT recount_tallies()")
            await take_together(connection, await connection.fetchval("SELECT count(*) FROM tallies"))
        if corrected:
            log.warning("tallies_corrected", nodes=corrected)
        return corrected
