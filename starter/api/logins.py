"""Who may come in: the password, the lockout, and the session that a login opens."""

import asyncio
import hashlib
import secrets
from dataclasses import dataclass, field
from datetime import timedelta
from weakref import WeakValueDictionary

import structlog

from adapters.postgres.accounts import Accounts, Credentials
from adapters.postgres.lockout import Lockout
from adapters.postgres.sessions import Identity, Sessions
from adapters.telemetry.metrics import LOGIN_FAILURES
from starter.api.passwords import Passwords, PasswordsBusy

log = structlog.get_logger()

_MOST_WAITING = 64


class BadCredentials(Exception):
    """Wrong username or wrong password: nobody is told which."""


@dataclass(frozen=True, slots=True)
class OpenedSession:
    identity: Identity
    secret: str = field(repr=False)


class Logins:
    def __init__(
        self, accounts: Accounts, sessions: Sessions, lockout: Lockout, passwords: Passwords, session_ttl: timedelta
    ) -> None:
        self.accounts = accounts
        self.sessions = sessions
        self.lockout = lockout
        self.passwords = passwords
        self.session_ttl = session_ttl
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._waiting = 0

    async def log_in(
        self, username: str, password: str, address: str, *, replaced: bytes | None = None
    ) -> OpenedSession:
        """Raises BadCredentials, TooManyAttempts or PasswordsBusy. The session id is always a new one."""
        credentials = await self.check(username, password, address)
        secret = new_secret()
        identity = await self.sessions.open(credentials, hash_secret(secret), self.session_ttl, replaced=replaced)
        if identity is None:
            raise BadCredentials
        if self.passwords.is_outdated(credentials.password_hash):
            await self.accounts.rehash(credentials, await self.passwords.hash(password))
        return OpenedSession(identity, secret)

    async def check(self, username: str, password: str, address: str) -> Credentials:
        """Counted as a failure first, and forgiven when it was none: see Lockout."""
        username = username.lower()
        if self._waiting >= _MOST_WAITING:
            raise PasswordsBusy
        self._waiting += 1
        try:
            # One attempt of an account at a time: its own logins at once must not look like guesses at once.
            async with self._turns.setdefault(username, asyncio.Lock()):
                return await self._check(username, password, address)
        finally:
            self._waiting -= 1

    async def _check(self, username: str, password: str, address: str) -> Credentials:
        await self.lockout.count(username, address)
        credentials = await self.accounts.credentials(username)
        right = await self.passwords.verify(credentials.password_hash if credentials else None, password)
        if credentials is None or not right:
            LOGIN_FAILURES.inc()
            log.info("login_failed", address=address)
            raise BadCredentials
        await self.lockout.forgive(username, address)
        return credentials


async def ensure_admin(accounts: Accounts, passwords: Passwords, password: str) -> bool:
    """First start: make `admin` when there is no admin. Never changes a user that is there."""
    if await accounts.has_admin():
        return False
    created = await accounts.create_first_admin(await passwords.hash(password))
    if created:
        log.info("admin_created")
    return created


def new_secret() -> str:
    return secrets.token_urlsafe(32)


def hash_secret(secret: str) -> bytes:
    """A 256-bit random secret needs no salt and no slow hash."""
    return hashlib.sha256(secret.encode(errors="surrogateescape")).digest()
