"""Users. Passwords arrive here hashed; what a user may do with them is the API's business."""

from dataclasses import dataclass, field
from datetime import datetime

import asyncpg

from adapters.postgres.actor import acting
from adapters.postgres.database import Database
from domain.audit import Actor, ActorKind
from domain.model import UserId

ADMIN = "admin"

_PAGE = """
WITH page AS (SELECT * FROM users ORDER BY created_at, id LIMIT $1 OFFSET $2)
SELECT * FROM (SELECT count(*) AS total FROM users) AS counted LEFT JOIN page ON true ORDER BY created_at, id
"""

_CHANGE = """
UPDATE users SET
    is_admin = COALESCE($2, is_admin),
    disabled_at = CASE WHEN $3::boolean IS NULL THEN disabled_at WHEN $3 THEN COALESCE(disabled_at, now()) END,
    password_hash = COALESCE($4, password_hash)
WHERE id = $1 RETURNING *
"""


class UsernameTaken(Exception):
    pass


class UserNotFound(Exception):
    pass


class LastAdmin(Exception):
    """Nobody would be left to manage the users."""


@dataclass(frozen=True, slots=True)
class User:
    id: UserId
    username: str
    is_admin: bool
    created_at: datetime
    disabled_at: datetime | None


@dataclass(frozen=True, slots=True)
class Credentials:
    user: User
    password_hash: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class UserChange:
    """None leaves a field as it is."""

    is_admin: bool | None = None
    disabled: bool | None = None
    password_hash: str | None = field(default=None, repr=False)
    revoke_tokens: bool = False


@dataclass(frozen=True, slots=True)
class Accounts:
    database: Database

    async def create(self, username: str, password_hash: str, *, is_admin: bool = False) -> User:
        async with self.database.transaction() as connection:
            row = await connection.fetchrow(
                "INSERT INTO users (username, password_hash, is_admin) VALUES ($1, $2, $3)"
                " ON CONFLICT (username) DO NOTHING RETURNING *",
                username,
                password_hash,
                is_admin,
            )
        if row is None:
            raise UsernameTaken
        return to_user(row)

    async def has_admin(self) -> bool:
        return bool(await self.database.fetchval("SELECT EXISTS (SELECT FROM users WHERE is_admin)"))

    async def create_first_admin(self, password_hash: str) -> bool:
        """False when there is an admin already, or another process was faster: nothing is overwritten."""
        with acting(Actor(ActorKind.SYSTEM, "codehub", reason="the first start")):
            async with self.database.transaction() as connection:
                created = await connection.fetchval(
                    "INSERT INTO users (username, password_hash, is_admin) SELECT $1, $2, true WHERE NOT EXISTS"
                    " (SELECT FROM users WHERE is_admin) ON CONFLICT (username) DO NOTHING RETURNING true",
                    ADMIN,
                    password_hash,
                )
        return bool(created)

    async def get(self, user_id: UserId) -> User:
        return to_user(_found(await self.database.fetchrow("SELECT * FROM users WHERE id = $1", user_id)))

    async def page(self, *, limit: int, offset: int) -> tuple[list[User], int]:
        rows = await self.database.fetch(_PAGE, limit, offset)
        return [to_user(row) for row in rows if row["id"] is not None], rows[0]["total"]

    async def credentials(self, username: str) -> Credentials | None:
        """Of a user who may log in."""
        row = await self.database.fetchrow("SELECT * FROM users WHERE username = $1 AND disabled_at IS NULL", username)
        return Credentials(to_user(row), row["password_hash"]) if row else None

    async def change(self, user_id: UserId, change: UserChange) -> User:
        """By an admin. Disabling and a new password end every session of the user."""
        async with self.database.transaction() as connection:
            if change.disabled or change.is_admin is False:
                # All of them, in one order: two admins who remove each other at once are served one by one.
                admins = await connection.fetch(
                    "SELECT id FROM users WHERE is_admin AND disabled_at IS NULL ORDER BY id FOR UPDATE"
                )
                if [str(admin["id"]) for admin in admins] == [user_id]:
                    raise LastAdmin
            row = _found(
                await connection.fetchrow(_CHANGE, user_id, change.is_admin, change.disabled, change.password_hash)
            )
            if change.disabled or change.password_hash is not None:
                await connection.execute("DELETE FROM sessions WHERE user_id = $1", user_id)
            if change.revoke_tokens:
                await connection.execute("DELETE FROM api_tokens WHERE user_id = $1", user_id)
            if change.password_hash is not None:
                await connection.execute(
                    "DELETE FROM login_failures WHERE scope = 'account' AND subject = $1", row["username"]
                )
            return to_user(row)

    async def change_password(
        self, current: Credentials, new_hash: str, *, kept: bytes, revoke_tokens: bool = False
    ) -> bool:
        """By the user: every session but the one whose token hash is `kept` ends. False: it changed meanwhile."""
        async with self.database.transaction() as connection:
            changed = await connection.fetchval(
                "UPDATE users SET password_hash = $3 WHERE id = $1 AND password_hash = $2 RETURNING true",
                current.user.id,
                current.password_hash,
                new_hash,
            )
            if changed:
                await connection.execute(
                    "DELETE FROM sessions WHERE user_id = $1 AND token_hash <> $2", current.user.id, kept
                )
            if changed and revoke_tokens:
                await connection.execute(
                    "DELETE FROM api_tokens WHERE user_id = $1 AND token_hash <> $2", current.user.id, kept
                )
            return bool(changed)

    async def rehash(self, current: Credentials, new_hash: str) -> None:
        """The same password under stronger parameters: nothing ends."""
        with acting(Actor(ActorKind.SYSTEM, "codehub", reason="the same password under stronger parameters")):
            async with self.database.transaction() as connection:
                await connection.execute(
                    "UPDATE users SET password_hash = $3 WHERE id = $1 AND password_hash = $2",
                    current.user.id,
                    current.password_hash,
                    new_hash,
                )


def to_user(row: asyncpg.Record) -> User:
    return User(
        id=UserId(str(row["id"])),
        username=row["username"],
        is_admin=row["is_admin"],
        created_at=row["created_at"],
        disabled_at=row["disabled_at"],
    )


def _found(row: asyncpg.Record | None) -> asyncpg.Record:
    if row is None:
        raise UserNotFound
    return row
