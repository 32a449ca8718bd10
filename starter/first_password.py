"""The administrator's first password: made by `codehub up`, kept, and shown for as long as it is the right one."""

import os
import secrets
from pathlib import Path

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from adapters.postgres.accounts import ADMIN, Accounts
from adapters.postgres.database import DatabaseUnavailable, open_database
from settings import Settings
from starter.embedded.errors import EmbeddedError

PASSWORD_FILE = "admin-password"  # noqa: S105 - a file's name


def first_password(settings: Settings, data: Path) -> str:
    """The given one, or the kept one, or a new one: kept so that a lost terminal costs nothing."""
    if settings.codehub_admin_password is not None:
        return settings.codehub_admin_password.get_secret_value()
    kept = data / PASSWORD_FILE
    try:
        if kept.exists():
            return kept.read_text().strip()
        password = secrets.token_urlsafe(15)
        with os.fdopen(os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(password + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise EmbeddedError(f"Can't keep the admin password in {kept} ({error.strerror}).") from error
    return password


async def told_login(password: str, database_url: str) -> str:
    """How to log in. A password that was changed since is nobody's any more: it is not shown as if it were."""
    return (
        f"{ADMIN} / {password}"
        if await _is_right(password, database_url)
        else f"{ADMIN}, with the password that you set"
    )


async def _is_right(password: str, database_url: str) -> bool:
    try:
        database = await open_database(database_url, max_size=1)
        try:
            credentials = await Accounts(database).credentials(ADMIN)
        finally:
            await database.close()
    except DatabaseUnavailable:
        # Nothing is known against it.
        return True
    try:
        return credentials is not None and PasswordHasher().verify(credentials.password_hash, password)
    except (VerificationError, InvalidHashError):
        return False
