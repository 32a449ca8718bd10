"""PROMISE 34."""

import asyncio
import random
import statistics
import time
from datetime import timedelta
from http.cookies import SimpleCookie
from itertools import combinations

import pytest
from argon2 import PasswordHasher

from adapters.postgres.lockout import LockoutPolicy
from starter.api.dependencies import ApiConfig
from starter.api.forwarded import TrustedProxies
from starter.api.passwords import Passwords
from tests.api.world import PASSWORD, Answer, Api, Person, serving


def _config(**policy: object) -> ApiConfig:
    return ApiConfig(default_image="ide", lockout=LockoutPolicy(**policy))  # type: ignore[arg-type]


def _cookie(answer: Answer, name: str = "session") -> SimpleCookie:
    cookie = SimpleCookie(answer.headers["Set-Cookie"])
    assert list(cookie) == [name]
    return cookie


async def test_login_and_logout(api: Api, alice: Person) -> None:
    """Login opens a session, logout ends it for good."""
    answer = await api.login("alice")
    assert answer.status == 200
    assert answer.json["user"]["username"] == "alice"
    assert "password" not in answer.body.decode()
    held = f"session={_cookie(answer)['session'].value}"
    assert (await api("GET", "/api/v1/session", Cookie=held)).json == answer.json

    out = await api("POST", "/api/v1/logout", Cookie=held)

    assert out.status == 204
    assert _cookie(out)["session"]["max-age"] == "0"
    assert (await api("GET", "/api/v1/session", Cookie=held)).status == 401
    assert (await api("POST", "/api/v1/logout", Cookie=held)).status == 204
    assert (await alice("GET", "/api/v1/session")).status == 200


async def test_the_cookie(api: Api, alice: Person) -> None:
    """HttpOnly, SameSite=Lax, Path=/, no Domain; 256 random bits, of which only a hash is stored."""
    morsel = _cookie(await api.login("alice"))["session"]
    assert morsel["httponly"] is True
    assert (morsel["samesite"].lower(), morsel["path"], morsel["domain"], morsel["secure"]) == ("lax", "/", "", "")
    assert len(morsel.value) >= 43
    stored = await api.deps.database.fetchval("SELECT string_agg(encode(token_hash, 'escape'), ' ') FROM sessions")
    assert morsel.value not in stored


async def test_session_id_changes_at_login(api: Api, alice: Person) -> None:
    """A login never takes over the session that the browser came with, and ends it."""
    second = await alice("POST", "/api/v1/login", {"username": "alice", "password": PASSWORD})
    assert _cookie(second)["session"].value != alice.secret
    assert (await alice("GET", "/api/v1/session")).status == 401


async def test_a_session_that_was_brought_along_is_worth_nothing(api: Api, alice: Person) -> None:
    """A session id chosen by somebody else doesn't become a session."""
    await api.login("alice", Cookie="session=chosen-by-the-attacker")
    assert (await api("GET", "/api/v1/session", Cookie="session=chosen-by-the-attacker")).status == 401


async def test_sessions_expire(api: Api, alice: Person) -> None:
    """An expired session is none, and is removed in the end."""
    await api.deps.database.execute("UPDATE sessions SET expires_at = now() - interval '1 second'")
    assert (await alice("GET", "/api/v1/session")).status == 401
    await api.deps.sessions.prune()
    assert await api.deps.database.fetchval("SELECT count(*) FROM sessions") == 0


async def test_secure_cookie_behind_a_trusted_proxy(database_url: str) -> None:
    """Over HTTPS the cookie is __Host-session and Secure, and a plain `session` counts for nothing."""
    config = ApiConfig(default_image="ide", trusted_proxies=TrustedProxies.parse("127.0.0.0/8"))
    async with serving(database_url, config) as api:
        alice = await api.person("alice")
        answer = await api.login("alice", X_Forwarded_Proto="https")
        morsel = _cookie(answer, "__Host-session")["__Host-session"]
        assert (morsel["secure"], morsel["path"], morsel["domain"]) == (True, "/", "")
        held = {"Cookie": f"__Host-session={morsel.value}", "X_Forwarded_Proto": "https"}
        assert (await api("GET", "/api/v1/session", **held)).status == 200
        assert (await alice("GET", "/api/v1/session", X_Forwarded_Proto="https")).status == 401


async def test_others_are_not_believed(api: Api, alice: Person) -> None:
    """Forwarded headers of a client that is no trusted proxy change nothing."""
    answer = await api.login("alice", X_Forwarded_Proto="https", X_Forwarded_For="203.0.113.9")
    assert _cookie(answer)["session"]["secure"] == ""
    await api.login("alice", "wrong", X_Forwarded_For="203.0.113.9")
    counted = await api.deps.database.fetch("SELECT subject FROM login_failures WHERE scope = 'address'")
    assert [row["subject"] for row in counted] == ["127.0.0.1"]


async def test_wrong_answers_are_one_answer(api: Api, alice: Person) -> None:
    """A wrong password, an unknown user and a disabled one get the same answer, byte for byte."""
    disabled = await api.person("carol")
    await api.deps.database.execute("UPDATE users SET disabled_at = now() WHERE id = $1", disabled.id)
    answers = [
        await api.login("alice", "wrong"),
        await api.login("nobody", PASSWORD),
        await api.login("carol", PASSWORD),
        await api.login("No Such Name!", PASSWORD),
    ]
    assert {answer.status for answer in answers} == {401}
    assert {answer.code for answer in answers} == {"bad_credentials"}
    assert len({answer.body for answer in answers}) == 1
    assert (await disabled("GET", "/api/v1/session")).status == 401


async def test_unknown_users_take_as_long(database_url: str) -> None:
    """The time of an answer does not tell whether there is such a user, nor whether it is a disabled one."""
    async with serving(database_url, _config(account_failures=10_000, address_failures=10_000)) as api:
        await api.person("alice")
        disabled = await api.person("carol")
        # Costly enough to stand out, as the real parameters do.
        passwords = Passwords(PasswordHasher(time_cost=2, memory_cost=32 * 1024, parallelism=1))
        api.deps.logins.passwords = passwords
        await api.deps.database.execute("UPDATE users SET password_hash = $1", await passwords.hash(PASSWORD))
        await api.deps.database.execute("UPDATE users SET disabled_at = now() WHERE id = $1", disabled.id)
        # The right password of the disabled one: what a person who left would try.
        tried = {"alice": "wrong", "nobody": "wrong", "carol": PASSWORD}
        taken: dict[str, list[float]] = {username: [] for username in tried}
        # All that was ever measured counts, interleaved and in any order: a busy machine takes more rounds until they
        # agree, and no lucky round hides a difference that is there.
        for number in range(1, MOST_ROUNDS + 1):
            for username in random.sample(list(tried), len(tried)):
                started = time.perf_counter()
                assert (await api.login(username, tried[username])).status == 401
                taken[username].append(time.perf_counter() - started)
            if number >= LEAST_ROUNDS and _as_long(taken):
                break
        passwords.close()
        assert _as_long(taken), {username: sorted(times)[::10] for username, times in taken.items()}


LEAST_ROUNDS, MOST_ROUNDS = 25, 100


def _as_long(taken: dict[str, list[float]]) -> bool:
    """By the fast ones of each, which a busy machine disturbs least (the fastest may have been alone on it for once),
    and by rank: of two answers to two users, neither comes first much more often than the other."""
    fast = [statistics.quantiles(times, n=4)[0] for times in taken.values()]
    return max(fast) < 1.1 * min(fast) and all(
        0.25 < _how_often_first(one, other) < 0.75 for one, other in combinations(taken.values(), 2)
    )


def _how_often_first(one: list[float], other: list[float]) -> float:
    return statistics.mean(mine < theirs for mine in one for theirs in other)


@pytest.mark.parametrize("username", ["alice", "nobody"])
async def test_lockout(api: Api, alice: Person, username: str) -> None:
    """After 5 failures even the right password is refused, with the same answer, for real and made-up users alike."""
    for _ in range(5):
        assert (await api.login(username, "wrong")).status == 401
    wrong, right = await api.login(username, "wrong"), await api.login(username, PASSWORD)
    assert (wrong.status, wrong.code) == (429, "too_many_attempts")
    assert (right.status, right.code) == (429, "too_many_attempts")
    assert 0 < int(wrong.headers["Retry-After"]) <= 60
    assert (await api.login(username.upper(), PASSWORD)).status == 429
    assert (await alice("GET", "/api/v1/session")).status == 200


async def test_lockout_grows_and_ends(database_url: str) -> None:
    """The lock ends by itself; each further failure doubles it, up to a bound; success starts from nothing."""
    async with serving(database_url, _config(account_lock=timedelta(seconds=100), address_failures=1000)) as api:
        await api.person("alice")

        async def lock_ends() -> None:
            await api.deps.database.execute("UPDATE login_failures SET locked_until = now()")

        for _ in range(5):
            await api.login("alice", "wrong")
        waits = []
        for _ in range(6):
            waits.append(int((await api.login("alice")).headers["Retry-After"]))
            await lock_ends()
            assert (await api.login("alice", "wrong")).status == 401
        assert [round(wait, -2) for wait in waits] == [100, 200, 400, 800, 900, 900]
        await lock_ends()
        assert (await api.login("alice")).status == 200
        for _ in range(4):
            assert (await api.login("alice", "wrong")).status == 401
        assert (await api.login("alice")).status == 200


async def test_guesses_at_once_are_counted_one_by_one(api: Api, alice: Person) -> None:
    """30 guesses at once are 5 guesses: the rest is refused unseen."""
    got = await asyncio.gather(*(api.login("alice", f"guess {number}") for number in range(30)))
    assert sorted(answer.status for answer in got) == [401] * 5 + [429] * 25


async def test_many_logins_of_one_person_at_once(api: Api, alice: Person) -> None:
    """Right passwords at once are no guesses."""
    got = await asyncio.gather(*(api.login("alice") for _ in range(20)))
    assert {answer.status for answer in got} == {200}


async def test_rate_limit_per_address(database_url: str) -> None:
    """One address can't try one password on many accounts: after its limit it waits, whatever the account."""
    async with serving(database_url, _config(address_failures=10)) as api:
        await api.person("alice")
        assert (await api.login("alice")).status == 200
        for number in range(10):
            assert (await api.login(f"user{number}", "wrong")).status == 401
        refused = await api.login("alice")
        assert (refused.status, refused.code) == (429, "too_many_attempts")
        assert 500 < int(refused.headers["Retry-After"]) <= 600
        await api.deps.database.execute(
            "UPDATE login_failures SET counted_from = now() - interval '11 minutes', locked_until = now()"
        )
        assert (await api.login("alice")).status == 200


async def test_right_logins_do_not_use_up_an_address(database_url: str) -> None:
    """An office behind one address logs in as often as it likes."""
    async with serving(database_url, _config(address_failures=3)) as api:
        await api.person("alice")
        for _ in range(8):
            assert (await api.login("alice")).status == 200


async def test_floods_wait_or_are_turned_away(api: Api) -> None:
    """More logins at once than can be served: 503 with Retry-After for the rest, never memory without bound."""
    got = await asyncio.gather(*(api.login(f"user{number}", "wrong") for number in range(200)))
    statuses = {answer.status for answer in got}
    assert 503 in statuses
    assert statuses <= {401, 429, 503}
    assert all("Retry-After" in answer.headers for answer in got if answer.status != 401)
