"""The routes of nodes: an admin's, and true about what is on them."""

from adapters.postgres.nodes import Nodes, Registration
from tests.api.world import Api, Person


async def _register(api: Api, *names: str) -> Nodes:
    nodes = Nodes(api.deps.database)
    for name in names:
        assert await nodes.register(Registration(name, f"engine of {name}", "10.0.0.2", 3, 4, 8 << 30))
    return nodes


async def test_nodes_are_listed_with_what_is_on_them(api: Api, admin: Person, alice: Person) -> None:
    await _register(api, "b", "a")
    workspace = await alice.workspace()
    await api.row(workspace, node="a", phase="STANDBY")
    listed = await admin("GET", "/api/v1/nodes")
    assert (listed.status, listed.json["total"]) == (200, 2)
    first, second = listed.json["items"]
    assert (first["name"], first["state"], first["homes"], first["capacity"]) == ("a", "ready", 1, 3)
    assert (second["name"], second["homes"], second["address"], second["drain"]) == ("b", 0, "10.0.0.2", None)
    assert (await admin("GET", "/api/v1/nodes/a")).json == first


async def test_nobody_else_sees_or_drains_them(api: Api, alice: Person) -> None:
    """To everybody but an admin there are none."""
    await _register(api, "a", "b")
    assert (await alice("GET", "/api/v1/nodes")).code == "admin_only"
    for method, path in (("GET", ""), ("POST", "/drain"), ("POST", "/uncordon"), ("DELETE", "")):
        assert (await alice(method, f"/api/v1/nodes/a{path}")).status == 404


async def test_a_drain_shows_how_far_it_is_and_can_be_taken_back(api: Api, admin: Person, alice: Person) -> None:
    nodes = await _register(api, "a", "b")
    workspace = await alice.workspace()
    await api.row(workspace, node="a", phase="STANDBY")
    drained = await admin("POST", "/api/v1/nodes/a/drain")
    assert (drained.status, drained.json["state"]) == (200, "draining")
    shown = drained.json["drain"]
    assert (shown["homes"], shown["left"], shown["leaving"], shown["message"]) == (1, 1, 0, None)
    assert await nodes.send_off("a", at_once=4) == [workspace]
    assert (await admin("GET", "/api/v1/nodes/a")).json["drain"]["leaving"] == 1
    assert (await admin("POST", "/api/v1/nodes/a/uncordon")).json["state"] == "ready"
    row = await api.deps.database.fetchrow("SELECT node, move_to FROM workspaces WHERE id = $1", workspace)
    assert row
    assert (row["node"], row["move_to"]) == ("a", None)


async def test_a_drain_says_why_it_does_not_go_on(api: Api, admin: Person, alice: Person) -> None:
    nodes = await _register(api, "a", "b")
    await api.deps.database.execute("UPDATE nodes SET capacity = 1")
    for name, node in (("one", "a"), ("two", "b")):
        await api.row(await alice.workspace(name), node=node, phase="STANDBY")
    await admin("POST", "/api/v1/nodes/a/drain")
    assert await nodes.send_off("a", at_once=4) == []
    shown = (await admin("GET", "/api/v1/nodes/a")).json["drain"]
    assert shown["message"] == "no other node has a free place: b is full (1 of 1)"
    await api.row(await alice.workspace("three"), node="a", phase="STANDBY")
    await api.deps.database.execute("UPDATE workspaces SET phase = 'ERROR', error_reason = 'Timeout' WHERE node = 'a'")
    assert await nodes.send_off("a", at_once=4) == []
    shown = (await admin("GET", "/api/v1/nodes/a")).json["drain"]
    assert shown["message"] == "2 left in ERROR: recover or delete them"


async def test_the_only_node_is_not_drained(api: Api, admin: Person) -> None:
    await _register(api, "a")
    assert (await admin("POST", "/api/v1/nodes/a/drain")).code == "only_node"
    assert (await admin("GET", "/api/v1/nodes/a")).json["state"] == "ready"


async def test_a_node_that_answers_is_not_removed(api: Api, admin: Person) -> None:
    await _register(api, "a", "b")
    assert (await admin("DELETE", "/api/v1/nodes/a")).code == "node_in_use"
    await api.deps.database.execute("UPDATE nodes SET seen_at = now() - interval '1 hour' WHERE name = 'a'")
    assert (await admin("GET", "/api/v1/nodes/a")).json["state"] == "lost"
    assert (await admin("DELETE", "/api/v1/nodes/a")).status == 204
    assert [node["name"] for node in (await admin("GET", "/api/v1/nodes")).json["items"]] == ["b"]


async def test_a_node_that_is_none_is_not_found(api: Api, admin: Person) -> None:
    for name in ("nobody", "Not-A-Name", "%00", "a" * 100):
        for method, path in (("GET", ""), ("POST", "/drain"), ("POST", "/uncordon"), ("DELETE", "")):
            assert (await admin(method, f"/api/v1/nodes/{name}{path}")).status == 404, (method, name)
