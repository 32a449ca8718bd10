"""TTL in set-based SQL: activity into the rows, then what has been idle for too long. Only desired_state changes."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from adapters.postgres.actor import acting
from adapters.postgres.database import Database
from adapters.postgres.last_access import touch
from domain.audit import Actor, ActorKind
from domain.model import DesiredState, WorkspaceId
from domain.ttl import TtlDefaults

# As of $3, before Redis was read, and not of now(): what Redis has learned since is not in the rows.
# One statement each: a user's change that commits first is what the row is judged by, so it wins. What somebody is
# changing at this moment is passed over, and looked at again by the next tick: whoever changes many rows waits for none
# while holding others.
# Those without a TTL of their own are found by index (see 0008_ttl.sql): the tick's cost is what expires.
# Of those that are RUNNING the index knows only when they were in use at least (see 0017_in_use_at.sql): whoever was
# used since stays, and is looked at again when a TTL has gone by since then.
_STANDBY = """
UPDATE workspaces SET in_use_at = last_access_at, desired_state = CASE
    WHEN GREATEST(last_access_at, phase_changed_at)
        < $3::timestamptz - $2::interval - make_interval(secs => COALESCE(standby_ttl_seconds, $1))
    THEN 'STANDBY' ELSE 'RUNNING' END
WHERE id IN (
    SELECT id FROM workspaces
    WHERE phase = 'RUNNING' AND operation = 'NONE' AND desired_state = 'RUNNING' AND (
        (standby_ttl_seconds IS NULL AND $1 > 0
         AND GREATEST(in_use_at, phase_changed_at) < $3::timestamptz - $2::interval - make_interval(secs => $1))
        OR (standby_ttl_seconds > 0
            AND GREATEST(last_access_at, phase_changed_at)
                < $3::timestamptz - $2::interval - make_interval(secs => standby_ttl_seconds)))
    FOR UPDATE SKIP LOCKED)
RETURNING id, desired_state
"""
_ARCHIVE = """
UPDATE workspaces SET desired_state = 'ARCHIVED'
WHERE id IN (
    SELECT id FROM workspaces
    WHERE phase = 'STANDBY' AND operation = 'NONE' AND desired_state = 'STANDBY' AND (
        (archive_ttl_seconds IS NULL AND $1 > 0 AND phase_changed_at < now() - make_interval(secs => $1))
        OR (archive_ttl_seconds > 0 AND phase_changed_at < now() - make_interval(secs => archive_ttl_seconds)))
    FOR UPDATE SKIP LOCKED)
RETURNING id
"""


@dataclass(frozen=True, slots=True)
class Expiry:
    database: Database
    defaults: TtlDefaults

    async def touch(self, seen: Mapping[WorkspaceId, datetime]) -> None:
        await touch(self.database, seen)

    async def now(self) -> datetime:
        now: datetime = await self.database.fetchval("SELECT now()")
        return now

    async def expire_running(self, known_at: datetime) -> list[WorkspaceId]:
        """Those whose TTL was over then: the rows hold all activity that was known at that time."""
        with acting(Actor(ActorKind.TTL, reason="not used for longer than its standby TTL")):
            async with self.database.transaction() as connection:
                seconds = int(self.defaults.standby.total_seconds())
                rows = await connection.fetch(_STANDBY, seconds, self.defaults.lag, known_at)
        return [WorkspaceId(str(row["id"])) for row in rows if row["desired_state"] == DesiredState.STANDBY]

    async def expire_standby(self) -> list[WorkspaceId]:
        with acting(Actor(ActorKind.TTL, reason="in STANDBY for longer than its archive TTL")):
            async with self.database.transaction() as connection:
                rows = await connection.fetch(_ARCHIVE, int(self.defaults.archive.total_seconds()))
        return [WorkspaceId(str(row["id"])) for row in rows]
