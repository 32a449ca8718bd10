"""`codehub node ls|rm` at a real API; draining is tests/nodes'."""

import pytest

from adapters.postgres.nodes import Nodes, Registration
from tests.api.world import Api, Person
from tests.cli.console import Cli


async def _silent(api: Api, *names: str) -> None:
    """Nodes that have not been heard of for an hour."""
    nodes = Nodes(api.deps.database)
    for name in names:
        assert await nodes.register(Registration(name, f"engine of {name}", "10.0.0.2", None, 4, 8 << 30))
    await api.deps.database.execute("UPDATE nodes SET seen_at = now() - interval '1 hour'")


async def test_a_host_that_was_emptied_is_forgotten(nobody: Cli, api: Api) -> None:
    """Drained and switched off: it needs no word about a loss, and is in no list any more."""
    await api.person("admin", is_admin=True)
    await nobody.login(api.url, "admin")
    await _silent(api, "a", "b")
    assert {"a", "b"} <= set((await nobody("node", "ls")).out.split())
    removed = await nobody("node", "rm", "b")
    assert (removed.code, removed.out) == (0, "b is removed.\n")
    assert [node["name"] for node in (await nobody("node", "ls", "--json")).json["items"]] == ["a"]


async def test_a_host_with_homes_is_given_up_only_by_saying_so(nobody: Cli, api: Api, alice: Person) -> None:
    await api.person("admin", is_admin=True)
    await nobody.login(api.url, "admin")
    await _silent(api, "a", "b")
    await api.row(await alice.workspace(), node="b", phase="STANDBY")
    refused = await nobody("node", "rm", "b")
    assert (refused.code, "codehub node rm b --accept-loss" in refused.err) == (4, True)
    assert (await nobody("node", "rm", "b", "--accept-loss")).code == 0


@pytest.mark.parametrize(
    "words", [("drain", "nosuch"), ("uncordon", "nosuch"), ("rm", "nosuch"), ("rm", "a/../nosuch")]
)
async def test_a_host_that_is_not_there_is_named(nobody: Cli, api: Api, words: tuple[str, str]) -> None:
    await api.person("admin", is_admin=True)
    await nobody.login(api.url, "admin")
    refused = await nobody("node", *words)
    assert (refused.code, refused.err) == (3, f"codehub: There is no node {words[1]!r}: codehub node ls\n")
