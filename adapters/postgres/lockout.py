"""Guessing passwords is slow: failed logins are counted per account and per address.

An attempt is counted before the password is looked at and taken back when it was right, so that any number of
attempts at once, at any number of API processes, is held to the same count.
"""

import math
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import asyncpg

from adapters.postgres.database import Database

# Each further failure doubles the lock, up to a bound: a person who was locked out by another gets back in.
_COUNT_ACCOUNT = """
INSERT INTO login_failures AS f (scope, subject, failures, counted_from, locked_until)
VALUES ('account', $1, 1, now(), CASE WHEN $2 <= 1 THEN now() + $3::interval END)
ON CONFLICT (scope, subject) DO UPDATE SET
    failures = CASE WHEN f.counted_from < now() - $5::interval THEN 1 ELSE f.failures + 1 END,
    counted_from = now(),
    locked_until = CASE
        WHEN f.counted_from < now() - $5::interval OR f.failures + 1 < $2 THEN NULL
        ELSE now() + LEAST($3::interval * power(2, LEAST(f.failures + 1 - $2, 20)), $4::interval) END
WHERE f.locked_until IS NULL OR f.locked_until <= now()
RETURNING true
"""

# A fixed window: behind one address there may be many people.
_COUNT_ADDRESS = """
INSERT INTO login_failures AS f (scope, subject, failures, counted_from, locked_until)
VALUES ('address', $1, 1, now(), CASE WHEN $2 <= 1 THEN now() + $3::interval END)
ON CONFLICT (scope, subject) DO UPDATE SET
    failures = CASE WHEN f.counted_from < now() - $3::interval THEN 1 ELSE f.failures + 1 END,
    counted_from = CASE WHEN f.counted_from < now() - $3::interval THEN now() ELSE f.counted_from END,
    locked_until = CASE
        WHEN f.counted_from < now() - $3::interval OR f.failures + 1 < $2 THEN NULL
        ELSE f.counted_from + $3::interval END
WHERE f.locked_until IS NULL OR f.locked_until <= now()
RETURNING true
"""

_LOCKED_UNTIL = "SELECT locked_until, now() AS now FROM login_failures WHERE scope = $1 AND subject = $2"

_REFUND_ADDRESS = """
UPDATE login_failures SET failures = failures - 1, locked_until = CASE WHEN failures > $2 THEN locked_until END
WHERE scope = 'address' AND subject = $1 AND failures > 0
"""

# Rows that somebody holds are left for the next time: this must not wait while it holds others.
_PRUNE = """
DELETE FROM login_failures WHERE (scope, subject) IN (
    SELECT scope, subject FROM login_failures
    WHERE counted_from < now() - $1::interval AND (locked_until IS NULL OR locked_until <= now())
    FOR UPDATE SKIP LOCKED)
"""


class TooManyAttempts(Exception):
    def __init__(self, retry_after: int) -> None:
        super().__init__(f"locked for {retry_after} s")
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class LockoutPolicy:
    account_failures: int = 5
    account_lock: timedelta = timedelta(minutes=1)
    account_longest_lock: timedelta = timedelta(minutes=15)
    account_memory: timedelta = timedelta(days=1)
    address_failures: int = 30
    address_window: timedelta = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Lockout:
    database: Database
    policy: LockoutPolicy = field(default_factory=LockoutPolicy)

    async def count(self, username: str, address: str) -> None:
        """Before the password is looked at. Raises TooManyAttempts, the same for every account, real or not."""
        policy = self.policy
        async with self.database.transaction() as connection:
            # The address first, always: the order of every transaction that locks both.
            counted = await connection.fetchval(_COUNT_ADDRESS, address, policy.address_failures, policy.address_window)
            locked = None if counted else await connection.fetchrow(_LOCKED_UNTIL, "address", address)
            if counted:
                counted = await connection.fetchval(
                    _COUNT_ACCOUNT,
                    username,
                    policy.account_failures,
                    policy.account_lock,
                    policy.account_longest_lock,
                    policy.account_memory,
                )
                locked = None if counted else await connection.fetchrow(_LOCKED_UNTIL, "account", username)
        if not counted:
            raise TooManyAttempts(_seconds_left(locked))

    async def forgive(self, username: str, address: str) -> None:
        """The password was right: the account starts from nothing, the address gets this one attempt back."""
        async with self.database.transaction() as connection:
            await connection.execute(_REFUND_ADDRESS, address, self.policy.address_failures)
            await connection.execute("DELETE FROM login_failures WHERE scope = 'account' AND subject = $1", username)

    async def prune(self) -> None:
        await self.database.execute(
            _PRUNE,
            max(self.policy.account_memory, self.policy.address_window),
        )


def _seconds_left(row: asyncpg.Record | None) -> int:
    """At least one: the lock may have been lifted since."""
    until: datetime | None = row["locked_until"] if row else None
    return max(1, math.ceil((until - row["now"]).total_seconds())) if row and until else 1
