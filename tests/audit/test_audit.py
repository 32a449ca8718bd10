"""Who changed what, when and why: in the transaction of the change, whoever makes it."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta

import asyncpg
import pytest

from adapters.postgres.actor import acting
from adapters.postgres.audit import Audit
from adapters.postgres.database import Database, open_database
from adapters.postgres.desired_state import DesiredStates
from adapters.postgres.nodes import Nodes, Registration
from adapters.postgres.ttl import Expiry
from domain.audit import Actor, ActorKind, Change, in_words
from domain.limits import Limits
from domain.model import DesiredState, UserId, WorkspaceId
from domain.ttl import TtlDefaults
from starter.proxy.decide import View
from starter.proxy.waking import wake
from tests.api.world import Api, Person, serving


@pytest.fixture
async def api(database_url: str) -> AsyncIterator[Api]:
    async with serving(database_url) as api:
        yield api


@pytest.fixture
async def alice(api: Api) -> Person:
    return await api.person("alice")


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = await open_database(database_url)
    yield database
    await database.close()


async def changes_of(api: Api, workspace_id: str) -> list[Change]:
    found, total = await api.deps.audit.page(limit=100, offset=0, subject_id=workspace_id)
    assert total == len(found)
    return list(reversed(found))


async def test_every_change_of_a_person_names_them(api: Api, alice: Person) -> None:
    """Created, asked for, changed, recovered, deleted: each with the person, the values and the request."""
    workspace = await alice.workspace(standby_ttl_seconds=60)
    await alice("PATCH", f"/api/v1/workspaces/{workspace}", {"desired_state": "RUNNING"}, X_Request_Id="req-1")
    await alice("PATCH", f"/api/v1/workspaces/{workspace}", {"memo": "a private thought", "standby_ttl_seconds": 0})
    await api.row(workspace, phase="ERROR", error_reason="Timeout", error_count=1)
    await alice("POST", f"/api/v1/workspaces/{workspace}/recover")
    await alice("DELETE", f"/api/v1/workspaces/{workspace}")

    found = await changes_of(api, workspace)
    assert [one.action for one in found] == ["created", "desired_state", "changed", "recovered", "deleted"]
    assert {(one.actor_kind, one.actor) for one in found} == {(ActorKind.USER, "alice")}
    assert found[1].changes == {"desired_state": ["STANDBY", "RUNNING"]}
    assert found[1].request_id == "req-1"
    assert found[2].changes == {"memo": True, "standby_ttl_seconds": [60, 0]}
    assert found[3].changes == {"error_reason": ["Timeout", None]}
    assert "private thought" not in str(found)


async def test_what_changes_nothing_is_no_change(api: Api, alice: Person) -> None:
    """A refused change, the value it already has, and what the controller writes leave no line."""
    workspace = await alice.workspace()
    await alice("PATCH", f"/api/v1/workspaces/{workspace}", {"desired_state": "STANDBY"})
    await api.busy(workspace)
    refused = await alice("PATCH", f"/api/v1/workspaces/{workspace}", {"desired_state": "ARCHIVED", "memo": "x"})
    assert refused.status == 409
    assert [one.action for one in await changes_of(api, workspace)] == ["created"]


async def test_ttl_says_so(api: Api, alice: Person) -> None:
    workspace = await alice.workspace(archive_ttl_seconds=1)
    await api.row(workspace, phase="STANDBY", phase_changed_at=(await _now(api)) - timedelta(hours=1))
    assert await Expiry(api.deps.database, TtlDefaults()).expire_standby() == [workspace]
    last = (await changes_of(api, workspace))[-1]
    assert (last.actor_kind, last.changes) == (ActorKind.TTL, {"desired_state": ["STANDBY", "ARCHIVED"]})
    assert "archive TTL" in (last.reason or "")


async def test_opening_a_workspace_that_sleeps_says_so(api: Api, alice: Person) -> None:
    """Auto-wake is what a person did, without having asked for it."""
    workspace = WorkspaceId(await alice.workspace())
    await api.row(workspace, phase="STANDBY")
    view = View.of((await api.deps.catalog.get(workspace, alice.id)).workspace)
    await wake(api.deps, await api.deps.accounts.get(alice.id), view)
    told = (await alice("GET", f"/api/v1/workspaces/{workspace}/explain")).json["last_change"]
    assert (told["actor_kind"], told["words"]) == ("auto-wake", "alice opened it and asked for RUNNING")


async def test_a_home_that_leaves_a_drained_node_says_so(api: Api, alice: Person) -> None:
    workspace = await alice.workspace()
    await api.row(workspace, phase="STANDBY", node="a")
    await api.row(workspace, move_to="b")
    last = (await changes_of(api, workspace))[-1]
    assert (last.actor_kind, in_words(last)) == (
        ActorKind.DRAIN,
        "its home moves from node a to b (its node is being drained)",
    )
    await api.row(workspace, move_to=None, node="b")
    assert (await changes_of(api, workspace))[-1] == last


async def test_whoever_drains_or_gives_up_a_node_is_named(api: Api, alice: Person) -> None:
    """Registered by its worker, drained, taken back, given up by an admin, and back again; beats leave no line."""
    admin = await api.person("admin", is_admin=True)
    nodes = Nodes(api.deps.database, timedelta(0))
    b = Registration("b", "engine", "127.0.0.1", None, 2, 10**9)
    for told in (b, replace(b, name="a")):
        assert await nodes.register(told)
        assert await nodes.beat(told.name, None)
    for method, path in (("POST", "/drain"), ("POST", "/drain"), ("POST", "/uncordon"), ("DELETE", "")):
        await api.deps.database.execute("UPDATE nodes SET seen_at = now() - interval '1 hour'")
        answer = await admin(method, f"/api/v1/nodes/b{path}", X_Request_Id="req-2")
        assert answer.status < 300, answer
    assert await nodes.register(b)

    node = (await admin("GET", "/api/v1/nodes/b")).json
    page = (await admin("GET", f"/api/v1/audit?subject_id={node['id']}")).json
    assert [one["words"] for one in reversed(page["items"])] == [
        "codehub registered node b (its worker started)",
        "admin drained node b",
        "admin uncordoned node b",
        "admin removed node b",
        "codehub registered node b (its worker started)",
    ]
    assert page["items"][1]["request_id"] == "req-2"
    assert {one["subject"] for one in page["items"]} == {"node"}
    assert (await admin("GET", "/api/v1/audit?subject=node")).json["total"] == 6, "and that of node a"
    assert (await alice("GET", "/api/v1/audit?subject=node")).code == "admin_only"


async def test_drift_is_told_apart_from_what_was_asked_for(api: Api, alice: Person) -> None:
    """A container that died: the operation that starts it again is nobody's wish."""
    workspace = await alice.workspace(desired_state="RUNNING")
    await api.row(workspace, phase="RUNNING")
    await api.row(workspace, phase="STANDBY")
    await api.busy(workspace)
    log = (await alice("GET", f"/api/v1/workspaces/{workspace}/operations")).json["items"]
    assert log[0]["cause"]["actor_kind"] == "drift"
    assert log[0]["cause"]["words"].startswith("it was found STANDBY instead of RUNNING")
    await api.row(workspace, phase="RUNNING", operation="NONE", op_id=None, op_started_at=None)
    told = (await alice("GET", f"/api/v1/workspaces/{workspace}/explain")).json["last_change"]["words"]
    assert told == "it was found STANDBY instead of RUNNING, and is RUNNING again"


async def test_somebody_at_the_database_does_not_go_unseen(api: Api, alice: Person, database_url: str) -> None:
    """Triggers write it, not the code that makes the change: also an older version, also psql."""
    workspace = await alice.workspace()
    connection = await asyncpg.connect(database_url, ssl=False)
    await connection.execute("UPDATE workspaces SET desired_state = 'ARCHIVED' WHERE id = $1", workspace)
    login = await connection.fetchval("SELECT session_user")
    await connection.close()
    last = (await changes_of(api, workspace))[-1]
    assert (last.actor_kind, last.actor, last.action) == (ActorKind.DATABASE, login, "desired_state")


async def test_it_is_in_the_transaction_of_the_change(api: Api, alice: Person) -> None:
    """A change that is rolled back was never made, and nobody made it."""
    workspace = await alice.workspace()
    with pytest.raises(RuntimeError, match="crash"):  # noqa: PT012
        async with api.deps.database.transaction() as connection:
            await api.deps.desired_states.set_in(connection, WorkspaceId(workspace), DesiredState.ARCHIVED)
            raise RuntimeError("crash before the commit")
    assert [one.action for one in await changes_of(api, workspace)] == ["created"]


async def test_actors_do_not_leak_between_tasks_and_connections(database: Database, alice: Person) -> None:
    """Twenty changes at once on few connections: each has its own actor, and who comes after them has none."""
    states = DesiredStates(database, Limits(100, 100))
    workspaces = [WorkspaceId(await alice.workspace(f"w{number}")) for number in range(20)]

    async def change(number: int) -> None:
        with acting(Actor(ActorKind.SYSTEM, f"actor-{number}", UserId(alice.id), reason=f"because {number}")):
            await states.set(workspaces[number], DesiredState.RUNNING)

    await asyncio.gather(*(change(number) for number in range(20)))
    audit = Audit(database)
    last = await audit.last(workspaces)
    assert [(last[id_].actor, last[id_].reason) for id_ in workspaces] == [
        (f"actor-{number}", f"because {number}") for number in range(20)
    ]
    await database.execute("UPDATE workspaces SET memo = 'x' WHERE id = $1", workspaces[0])
    assert (await audit.last(workspaces[:1]))[workspaces[0]].actor_kind is ActorKind.DATABASE


async def test_the_operation_log_says_what_each_operation_was_for(api: Api, alice: Person) -> None:
    """The cause is the last change before the operation began; explain tells the last one of all."""
    workspace = await alice.workspace()
    await api.busy(workspace, "PROVISIONING")
    await api.deps.database.execute("UPDATE operations SET outcome = 'SUCCEEDED', finished_at = now()")
    await api.row(workspace, phase="STANDBY", operation="NONE", op_id=None, op_started_at=None)
    await alice("PATCH", f"/api/v1/workspaces/{workspace}", {"desired_state": "RUNNING"})
    await api.busy(workspace, "STARTING")
    log = (await alice("GET", f"/api/v1/workspaces/{workspace}/operations")).json["items"]
    assert [(one["operation"], one["cause"]["words"]) for one in log] == [
        ("STARTING", "alice asked for RUNNING"),
        ("PROVISIONING", "alice created it, to be STANDBY"),
    ]
    told = (await alice("GET", f"/api/v1/workspaces/{workspace}/explain")).json
    assert told["last_change"]["words"] == "alice asked for RUNNING"


async def test_an_admin_sees_everything_and_an_owner_their_own(api: Api, alice: Person) -> None:
    """Users and tokens too; passwords only as having changed."""
    admin = await api.person("admin", is_admin=True)
    created = await admin("POST", "/api/v1/users", {"username": "carol", "password": "long enough"})
    carol = created.json["id"]
    await admin("PATCH", f"/api/v1/users/{carol}", {"password": "another one", "disabled": True})
    token = (await alice("POST", "/api/v1/tokens", {"name": "laptop"})).json
    await alice("DELETE", f"/api/v1/tokens/{token['id']}")
    workspace = await alice.workspace()

    page = (await admin("GET", f"/api/v1/audit?subject_id={carol}")).json
    assert [one["words"] for one in page["items"]] == ["admin changed disabled, the password", "admin created it"]
    assert "argon2" not in str(page)
    page = (await admin("GET", f"/api/v1/audit?subject_id={token['id']}")).json
    assert [one["action"] for one in page["items"]] == ["revoked", "created"]
    assert (await admin("GET", "/api/v1/audit?actor_kind=user&limit=1")).json["total"] == 3
    assert (await alice("GET", "/api/v1/audit")).code == "admin_only"
    own = await alice("GET", f"/api/v1/workspaces/{workspace}/audit")
    assert [one["action"] for one in own.json["items"]] == ["created"]
    assert (await admin("GET", f"/api/v1/workspaces/{workspace}/audit")).status == 404


async def test_it_is_kept_for_as_long_as_it_was_set(api: Api, alice: Person) -> None:
    workspace = await alice.workspace()
    await api.deps.database.execute("UPDATE audit SET at = at - interval '2 days'")
    await alice("PATCH", f"/api/v1/workspaces/{workspace}", {"memo": "later"})
    await Audit(api.deps.database, timedelta(days=1)).prune()
    assert [one.action for one in await changes_of(api, workspace)] == ["changed"]


async def _now(api: Api) -> datetime:
    now: datetime = await api.deps.database.fetchval("SELECT now()")
    return now
