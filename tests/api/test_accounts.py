import asyncio

import pytest

from starter.api.logins import ensure_admin
from starter.api.passwords import Passwords, PasswordsBusy
from tests.api.world import PASSWORD, Api, Person

USERS = "/api/v1/users"
NEW_PASSWORD = "another good one"


async def test_users(api: Api, admin: Person) -> None:
    """An admin makes users, who can log in; they are listed without anything secret."""
    made = await admin("POST", USERS, {"username": "carol", "password": PASSWORD})
    assert made.status == 201
    assert list(made.json) == ["id", "username", "is_admin", "created_at", "disabled_at"]
    assert made.json["is_admin"] is False
    assert (await admin("POST", USERS, {"username": "carol", "password": PASSWORD})).code == "username_taken"
    assert (await api.login("carol")).status == 200
    listed = (await admin("GET", USERS)).json
    assert ([user["username"] for user in listed["items"]], listed["total"]) == (["admin", "carol"], 2)
    assert (await admin("GET", f"{USERS}?limit=1&offset=7")).json == {"items": [], "total": 2}
    assert (await admin("GET", f"{USERS}/{made.json['id']}")).json == made.json


async def test_usernames(admin: Person) -> None:
    """A username is what the table takes, and nothing else."""
    for username in ("", "Carol", "-x", "a b", "x" * 64, "ä", "x\n", "a/b", None, 7):
        answer = await admin("POST", USERS, {"username": username, "password": PASSWORD})
        assert (answer.status, answer.code) == (422, "invalid"), username
        assert "username" in answer.message
    assert (await admin("POST", USERS, {"username": "x" * 63, "password": PASSWORD})).status == 201


async def test_disabled_users(api: Api, admin: Person, alice: Person) -> None:
    """Disabling ends sessions and tokens at once; enabling brings back the tokens, not the sessions."""
    token = (await alice("POST", "/api/v1/tokens", {"name": "t"})).json["token"]
    bearer = {"Authorization": f"Bearer {token}"}
    assert (await admin("PATCH", f"{USERS}/{alice.id}", {"disabled": True})).json["disabled_at"] is not None
    assert (await alice("GET", "/api/v1/session")).status == 401
    assert (await api("GET", "/api/v1/session", **bearer)).status == 401
    assert (await api.login("alice")).status == 401

    assert (await admin("PATCH", f"{USERS}/{alice.id}", {"disabled": False})).json["disabled_at"] is None

    assert (await alice("GET", "/api/v1/session")).status == 401
    assert (await api("GET", "/api/v1/session", **bearer)).status == 200
    assert (await api.login("alice")).status == 200


async def test_password_reset(api: Api, admin: Person, alice: Person) -> None:
    """A reset ends every session and the lockout; the old password is worth nothing."""
    for _ in range(6):
        await api.login("alice", "wrong")
    assert (await api.login("alice")).status == 429
    answer = await admin("PATCH", f"{USERS}/{alice.id}", {"password": NEW_PASSWORD, "revoke_tokens": True})
    assert answer.status == 200
    assert (await alice("GET", "/api/v1/session")).status == 401
    assert (await api.login("alice", NEW_PASSWORD)).status == 200
    assert (await api.login("alice", PASSWORD)).status == 401


async def test_the_last_admin_stays(admin: Person, alice: Person) -> None:
    """The last admin can't be disabled or made an ordinary user; the last but one can."""
    for change in ({"disabled": True}, {"is_admin": False}):
        answer = await admin("PATCH", f"{USERS}/{admin.id}", change)
        assert (answer.status, answer.code) == (409, "last_admin")
    assert (await admin("PATCH", f"{USERS}/{alice.id}", {"is_admin": True})).status == 200
    assert (await admin("PATCH", f"{USERS}/{admin.id}", {"is_admin": False})).status == 200
    assert (await alice("PATCH", f"{USERS}/{alice.id}", {"disabled": True})).code == "last_admin"


async def test_two_admins_who_remove_each_other(api: Api) -> None:
    """At once, one of them succeeds."""
    one, two = await api.person("one", is_admin=True), await api.person("two", is_admin=True)
    got = await asyncio.gather(
        one("PATCH", f"{USERS}/{two.id}", {"disabled": True}), two("PATCH", f"{USERS}/{one.id}", {"disabled": True})
    )
    assert await api.deps.database.fetchval("SELECT count(*) FROM users WHERE disabled_at IS NULL") == 1
    assert {answer.status for answer in got} <= {200, 401, 404, 409}


async def test_own_password(api: Api, alice: Person) -> None:
    """It takes the old one, ends every other session, and tokens only when asked to."""
    other = await api.session_of("alice", alice.id)
    token = (await alice("POST", "/api/v1/tokens", {"name": "t"})).json["token"]
    bearer = {"Authorization": f"Bearer {token}"}
    change = {"old_password": PASSWORD, "new_password": NEW_PASSWORD}
    wrong = await alice("POST", "/api/v1/password", {**change, "old_password": "wrong"})
    assert (wrong.status, wrong.code) == (403, "wrong_password")

    assert (await alice("POST", "/api/v1/password", change)).status == 204

    assert (await alice("GET", "/api/v1/session")).status == 200
    assert (await other("GET", "/api/v1/session")).status == 401
    assert (await api("GET", "/api/v1/session", **bearer)).status == 200
    back = {"old_password": NEW_PASSWORD, "new_password": PASSWORD, "revoke_tokens": True}
    assert (await alice("POST", "/api/v1/password", back)).status == 204
    assert (await api("GET", "/api/v1/session", **bearer)).status == 401


async def test_guessing_the_old_password(api: Api, alice: Person) -> None:
    """A stolen session can't try out passwords: the lockout is that of the login."""
    for _ in range(5):
        await alice("POST", "/api/v1/password", {"old_password": "guess", "new_password": NEW_PASSWORD})
    answer = await alice("POST", "/api/v1/password", {"old_password": PASSWORD, "new_password": NEW_PASSWORD})
    assert (answer.status, answer.code) == (429, "too_many_attempts")


async def test_a_login_that_a_reset_overtakes(api: Api, alice: Person) -> None:
    """A password that was right when it was looked at opens no session after it was changed."""
    credentials = await api.deps.accounts.credentials("alice")
    assert credentials
    await api.deps.database.execute("UPDATE users SET password_hash = 'other' WHERE id = $1", alice.id)
    assert await api.deps.sessions.open(credentials, b"x" * 32, api.deps.config.session_ttl) is None


async def test_first_admin(api: Api) -> None:
    """The first start makes `admin`; later ones change nothing, also several at once."""
    accounts, passwords = api.deps.accounts, api.deps.passwords
    made = await asyncio.gather(*(ensure_admin(accounts, passwords, PASSWORD) for _ in range(5)))
    assert sorted(made) == [False, False, False, False, True]
    assert await ensure_admin(accounts, passwords, NEW_PASSWORD) is False
    answer = await api.login("admin")
    assert (answer.status, answer.json["user"]["is_admin"]) == (200, True)


async def test_tokens(api: Api, alice: Person) -> None:
    """A token is shown once, works as bearer, tells when it was used, and is refused as soon as it is revoked."""
    made = await alice("POST", "/api/v1/tokens", {"name": "laptop"})
    assert made.status == 201
    secret = made.json["token"]
    assert secret.startswith("chub_")
    assert len(secret) >= 48
    bearer = {"Authorization": f"Bearer {secret}"}

    used = await api("POST", "/api/v1/workspaces", {"name": "by token", "desired_state": "STANDBY"}, **bearer)

    assert (used.status, used.json["owner_user_id"]) == (201, alice.id)
    assert (await api("GET", "/api/v1/session", **bearer)).json["expires_at"] is None
    listed = await alice("GET", "/api/v1/tokens")
    assert secret not in listed.body.decode()
    assert listed.json["items"][0]["last_used_at"] is not None
    stored = await api.deps.database.fetchval("SELECT string_agg(t::text, ' ') FROM api_tokens t")
    assert secret not in stored
    assert (await alice("DELETE", f"/api/v1/tokens/{made.json['id']}")).status == 204
    assert (await api("GET", "/api/v1/session", **bearer)).status == 401
    assert (await alice("DELETE", f"/api/v1/tokens/{made.json['id']}")).status == 404


async def test_last_used_is_written_once_a_minute(api: Api, alice: Person) -> None:
    """A busy token costs one write a minute, not one a request."""
    secret = (await alice("POST", "/api/v1/tokens", {"name": "t"})).json["token"]

    async def written() -> object:
        await api("GET", "/api/v1/session", Authorization=f"Bearer {secret}")
        return await api.deps.database.fetchval("SELECT last_used_at FROM api_tokens")

    first = await written()
    assert await written() == first
    await api.deps.database.execute("UPDATE api_tokens SET last_used_at = now() - interval '61 seconds'")
    assert await written() != first


async def test_a_token_makes_no_tokens(api: Api, alice: Person) -> None:
    """One that leaked can't make itself successors."""
    secret = (await alice("POST", "/api/v1/tokens", {"name": "t"})).json["token"]
    answer = await api("POST", "/api/v1/tokens", {"name": "child"}, Authorization=f"Bearer {secret}")
    assert (answer.status, answer.code) == (403, "session_required")


async def test_authorization_hides_the_cookie(alice: Person) -> None:
    """Where a header says who is calling, the cookie says nothing."""
    assert (await alice("GET", "/api/v1/session", Authorization="Bearer chub_wrong")).status == 401
    assert (await alice("GET", "/api/v1/session", Authorization="Basic YTpi")).status == 401


async def test_passwords_are_argon2id() -> None:
    """argon2id with 64 MiB, salted: the same password never looks the same."""
    passwords = Passwords()
    one, two = await passwords.hash(PASSWORD), await passwords.hash(PASSWORD)
    assert one.startswith("$argon2id$v=19$m=65536,t=3,")
    assert one != two
    assert await passwords.verify(one, PASSWORD)
    assert not await passwords.verify(one, "wrong")
    assert not await passwords.verify(None, "nobody's password")
    assert not await passwords.verify("not a hash", PASSWORD)
    passwords.close()


async def test_passwords_are_bounded() -> None:
    """Only so many wait; the next is told to come back."""
    passwords = Passwords(at_once=1, waiting=1)
    work = [asyncio.create_task(passwords.hash(PASSWORD)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(PasswordsBusy):
        await passwords.hash(PASSWORD)
    await asyncio.gather(*work)
    assert await passwords.hash(PASSWORD)
    passwords.close()
