import asyncio
from collections import Counter

from domain.limits import Limits
from starter.api.dependencies import ApiConfig
from tests.api.world import serving

PATH = "/api/v1/workspaces"


def _config(per_user: int, in_all: int) -> ApiConfig:
    return ApiConfig(default_image="ide", limits=Limits(per_user, in_all))


async def test_fifty_creates_for_the_last_place(database_url: str) -> None:
    """50 simultaneous creates for one place: one 201, 49 times 429 with Retry-After (PROMISE 22)."""
    async with serving(database_url, _config(50, 3)) as api:
        alice, bob = await api.person("alice"), await api.person("bob")
        for name in ("one", "two"):
            await bob.workspace(name, desired_state="RUNNING")

        got = await asyncio.gather(*(alice("POST", PATH, {"name": f"w{number}"}) for number in range(50)))

        assert Counter(answer.status for answer in got) == {201: 1, 429: 49}
        refused = [answer for answer in got if answer.status == 429]
        assert {answer.code for answer in refused} == {"limit_global"}
        assert all(int(answer.headers["Retry-After"]) > 0 for answer in refused)
        assert (await alice("GET", PATH)).json["total"] == 1


async def test_fifty_starts_for_the_last_place(database_url: str) -> None:
    """The same by create and PATCH mixed, for the last place of a user."""
    async with serving(database_url, _config(1, 100)) as api:
        alice = await api.person("alice")
        asleep = [await alice.workspace(f"asleep{number}") for number in range(25)]
        creates = [alice("POST", PATH, {"name": f"new{number}"}) for number in range(25)]
        starts = [alice("PATCH", f"{PATH}/{one}", {"desired_state": "RUNNING"}) for one in asleep]

        got = await asyncio.gather(*(call for pair in zip(creates, starts, strict=True) for call in pair))

        won = [answer for answer in got if answer.status in {200, 201}]
        refused = [answer for answer in got if answer.status == 429]
        assert (len(won), len(refused)) == (1, 49)
        assert {answer.code for answer in refused} == {"limit_per_user"}
        running = await api.deps.database.fetchval("SELECT count(*) FROM workspaces WHERE desired_state = 'RUNNING'")
        assert running == 1


async def test_only_running_needs_a_place(database_url: str) -> None:
    """STANDBY and ARCHIVED are never refused; a place that is left can be had again."""
    async with serving(database_url, _config(1, 100)) as api:
        alice = await api.person("alice")
        one = await alice.workspace("one", desired_state="RUNNING")
        await alice.workspace("two", desired_state="ARCHIVED")
        three = await alice.workspace("three")
        assert (await alice("PATCH", f"{PATH}/{three}", {"desired_state": "RUNNING"})).status == 429
        assert (await alice("PATCH", f"{PATH}/{one}", {"desired_state": "STANDBY"})).status == 200
        assert (await alice("PATCH", f"{PATH}/{three}", {"desired_state": "RUNNING"})).status == 200


async def test_recover_needs_a_place(database_url: str) -> None:
    """A workspace in ERROR holds no place, so it needs one to go on towards RUNNING."""
    async with serving(database_url, _config(1, 100)) as api:
        alice = await api.person("alice")
        one = await alice.workspace("one", desired_state="RUNNING")
        await api.row(one, phase="ERROR", error_reason="Timeout", error_count=1)
        await alice.workspace("two", desired_state="RUNNING")

        answer = await alice("POST", f"{PATH}/{one}/recover")

        assert (answer.status, answer.code) == (429, "limit_per_user")


async def test_a_name_that_is_taken_is_said_before_a_limit(database_url: str) -> None:
    """Freeing a place would not help."""
    async with serving(database_url, _config(1, 100)) as api:
        alice = await api.person("alice")
        await alice.workspace("one", desired_state="RUNNING")

        answer = await alice("POST", PATH, {"name": "one"})

        assert (answer.status, answer.code) == (409, "name_taken")
