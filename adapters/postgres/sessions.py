"""What proves who is calling: login sessions and API tokens. Only their SHA-256 is stored."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

import asyncpg

from adapters.postgres.accounts import Credentials, User
from adapters.postgres.database import Database
from domain.model import UserId

_FIND_BY_COOKIE = """
SELECT u.id, u.username, u.is_admin, u.created_at, u.disabled_at, s.expires_at
FROM sessions s JOIN users u ON u.id = s.user_id
WHERE s.token_hash = $1 AND s.expires_at > now() AND u.disabled_at IS NULL
"""

_FIND_OF_USER = """
SELECT u.id, u.username, u.is_admin, u.created_at, u.disabled_at, s.token_hash, s.expires_at
FROM sessions s JOIN users u ON u.id = s.user_id
WHERE s.user_id = $1 AND s.expires_at > now() AND u.disabled_at IS NULL
ORDER BY s.expires_at DESC LIMIT 1000
"""

_FIND_BEARER = """
SELECT u.id, u.username, u.is_admin, u.created_at, u.disabled_at, t.id AS token_id,
       t.last_used_at IS NULL OR t.last_used_at < now() - interval '1 minute' AS use_is_news
FROM api_tokens t JOIN users u ON u.id = t.user_id
WHERE t.token_hash = $1 AND u.disabled_at IS NULL
"""

# The password that was verified must still be the user's: a session never outlives a change that it did not see.
_OPEN = """
INSERT INTO sessions (token_hash, user_id, expires_at)
SELECT $3, id, now() + $4 FROM users WHERE id = $1 AND password_hash = $2 AND disabled_at IS NULL FOR SHARE
RETURNING expires_at
"""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who is calling, and by what."""

    user: User
    token_hash: bytes = field(repr=False)
    expires_at: datetime | None = None
    token_id: str | None = None

    @property
    def by_session(self) -> bool:
        return self.token_id is None


@dataclass(frozen=True, slots=True)
class ApiToken:
    id: str
    name: str
    created_at: datetime
    last_used_at: datetime | None


@dataclass(frozen=True, slots=True)
class Sessions:
    database: Database

    async def open(
        self, credentials: Credentials, token_hash: bytes, ttl: timedelta, *, replaced: bytes | None = None
    ) -> Identity | None:
        """A new session in place of the one that the browser had. None: password or user changed meanwhile."""
        async with self.database.transaction() as connection:
            expires_at = await connection.fetchval(
                _OPEN, credentials.user.id, credentials.password_hash, token_hash, ttl
            )
            if expires_at is None:
                return None
            if replaced is not None:
                await connection.execute("DELETE FROM sessions WHERE token_hash = $1", replaced)
            return Identity(credentials.user, token_hash, expires_at)

    async def find(self, token_hash: bytes) -> Identity | None:
        row = await self.database.fetchrow(_FIND_BY_COOKIE, token_hash)
        return Identity(_user(row), token_hash, row["expires_at"]) if row else None

    async def of_user(self, user_id: UserId) -> list[Identity]:
        rows = await self.database.fetch(_FIND_OF_USER, user_id)
        return [Identity(_user(row), row["token_hash"], row["expires_at"]) for row in rows]

    async def close(self, token_hash: bytes) -> None:
        await self.database.execute("DELETE FROM sessions WHERE token_hash = $1", token_hash)

    async def prune(self) -> None:
        await self.database.execute("DELETE FROM sessions WHERE expires_at <= now()")


@dataclass(frozen=True, slots=True)
class ApiTokens:
    database: Database

    async def create(self, user_id: UserId, name: str, token_hash: bytes) -> ApiToken:
        async with self.database.transaction() as connection:
            row = await connection.fetchrow(
                "INSERT INTO api_tokens (user_id, name, token_hash) VALUES ($1, $2, $3) RETURNING *",
                user_id,
                name,
                token_hash,
            )
        if row is None:
            raise AssertionError("INSERT … RETURNING gives a row")
        return _token(row)

    async def of_user(self, user_id: UserId) -> list[ApiToken]:
        rows = await self.database.fetch(
            "SELECT * FROM api_tokens WHERE user_id = $1 ORDER BY created_at DESC, id", user_id
        )
        return [_token(row) for row in rows]

    async def revoke(self, user_id: UserId, token_id: str) -> bool:
        async with self.database.transaction() as connection:
            revoked = await connection.fetchval(
                "DELETE FROM api_tokens WHERE id = $1 AND user_id = $2 RETURNING true", token_id, user_id
            )
        return bool(revoked)

    async def find(self, token_hash: bytes) -> Identity | None:
        """One query; when it was used last is written at most once a minute."""
        row = await self.database.fetchrow(_FIND_BEARER, token_hash)
        if row is None:
            return None
        if row["use_is_news"]:
            await self.database.execute("UPDATE api_tokens SET last_used_at = now() WHERE id = $1", row["token_id"])
        return Identity(_user(row), token_hash, token_id=str(row["token_id"]))


def _user(row: asyncpg.Record) -> User:
    return User(UserId(str(row["id"])), row["username"], row["is_admin"], row["created_at"], row["disabled_at"])


def _token(row: asyncpg.Record) -> ApiToken:
    return ApiToken(str(row["id"]), row["name"], row["created_at"], row["last_used_at"])
