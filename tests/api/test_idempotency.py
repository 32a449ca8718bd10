import asyncio

from tests.api.world import Api, Person

PATH = "/api/v1/workspaces"
BODY = {"name": "one", "desired_state": "STANDBY"}


async def test_same_key_same_answer(api: Api, alice: Person) -> None:
    """The same key and body give the first answer, byte for byte, although the workspace has moved on."""
    first = await alice("POST", PATH, BODY, Idempotency_Key="k1")
    await api.row(first.json["id"], phase="STANDBY", memo="moved on")

    again = await alice("POST", PATH, {**BODY, "description": ""}, Idempotency_Key="k1")

    assert (first.status, again.status) == (201, 201)
    assert again.body == first.body
    assert (await alice("GET", PATH)).json["total"] == 1


async def test_replay_wakes_again(api: Api, alice: Person) -> None:
    """The process may have died between commit and wake: the repeated request wakes it."""
    first = await alice("POST", PATH, BODY, Idempotency_Key="k1")
    api.wakes.woken.clear()
    await alice("POST", PATH, BODY, Idempotency_Key="k1")
    assert api.wakes.woken == [first.json["id"]]


async def test_same_key_at_once(alice: Person) -> None:
    """20 requests with one key at once make exactly one workspace, and all are told of it."""
    got = await asyncio.gather(*(alice("POST", PATH, BODY, Idempotency_Key="k1") for _ in range(20)))
    assert {answer.status for answer in got} == {201}
    assert len({answer.body for answer in got}) == 1
    assert (await alice("GET", PATH)).json["total"] == 1


async def test_same_key_other_body(alice: Person) -> None:
    """A key can't be used for something else."""
    await alice("POST", PATH, BODY, Idempotency_Key="k1")
    other = await alice("POST", PATH, {**BODY, "name": "two"}, Idempotency_Key="k1")
    assert (other.status, other.code) == (422, "idempotency_mismatch")


async def test_keys_are_the_users_own(alice: Person, bob: Person) -> None:
    """Another user's key is another key."""
    hers = await alice("POST", PATH, BODY, Idempotency_Key="k1")
    his = await bob("POST", PATH, BODY, Idempotency_Key="k1")
    assert (his.status, his.json["owner_user_id"]) == (201, bob.id)
    assert his.json["id"] != hers.json["id"]


async def test_a_refused_create_keeps_no_key(alice: Person) -> None:
    """What was refused may be tried again with the same key."""
    blocking = await alice.workspace("one")
    refused = await alice("POST", PATH, BODY, Idempotency_Key="k1")
    assert refused.code == "name_taken"
    await alice("DELETE", f"{PATH}/{blocking}")
    assert (await alice("POST", PATH, BODY, Idempotency_Key="k1")).status == 201


async def test_keys_are_kept_for_a_day(api: Api, alice: Person) -> None:
    """After 24 hours a key is a new one."""
    first = await alice("POST", PATH, BODY, Idempotency_Key="k1")
    await api.deps.database.execute("UPDATE idempotency_keys SET created_at = now() - interval '23 hours'")
    assert (await alice("POST", PATH, BODY, Idempotency_Key="k1")).body == first.body
    await api.deps.database.execute("UPDATE idempotency_keys SET created_at = now() - interval '25 hours'")
    fresh = await alice("POST", PATH, {**BODY, "name": "two"}, Idempotency_Key="k1")
    assert (fresh.status, fresh.json["name"]) == (201, "two")


async def test_keys_that_are_none(alice: Person) -> None:
    """A key is 1 to 255 visible characters."""
    for key in ("", "x" * 256, "two words", "schlüssel"):
        answer = await alice("POST", PATH, BODY, Idempotency_Key=key)
        assert (answer.status, answer.code) == (422, "invalid"), key
        assert "Idempotency-Key" in answer.message
