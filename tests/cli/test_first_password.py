"""What `codehub up` says of how to log in."""

import stat
from pathlib import Path

from argon2 import PasswordHasher

from adapters.postgres.accounts import Accounts, UserChange
from adapters.postgres.database import open_database
from settings import Settings
from starter.first_password import PASSWORD_FILE, first_password, told_login

HASHER = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


def test_a_new_one_is_kept_for_its_owner_only(tmp_path: Path) -> None:
    made = first_password(Settings(), tmp_path)
    assert first_password(Settings(), tmp_path) == made
    assert stat.S_IMODE((tmp_path / PASSWORD_FILE).stat().st_mode) == 0o600


async def test_it_is_shown_only_while_it_is_the_right_one(database_url: str) -> None:
    """Whoever has changed it is not sent to log in with the former one."""
    database = await open_database(database_url)
    try:
        accounts = Accounts(database)
        assert await accounts.create_first_admin(HASHER.hash("first"))
        assert await told_login("first", database_url) == "admin / first"
        admin = await accounts.credentials("admin")
        assert admin
        await accounts.change(admin.user.id, UserChange(password_hash=HASHER.hash("another")))
        assert await told_login("first", database_url) == "admin, with the password that you set"
    finally:
        await database.close()


async def test_a_database_that_is_away_says_nothing_against_it() -> None:
    assert await told_login("first", "postgresql://u:p@127.0.0.1:1/d") == "admin / first"
