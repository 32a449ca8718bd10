"""An admin looks after everybody's workspaces: the runbook, carried out by whoever gets the alert."""

from typing import Any

import pytest

from domain.limits import Limits
from starter.api.dependencies import ApiConfig
from tests.api.world import Api, Person, serving

OWN = "/api/v1/workspaces"
ANY = "/api/v1/admin/workspaces"


async def in_error(api: Api, owner: Person, name: str = "hers", **fields: Any) -> str:
    """With a failed operation in its log."""
    workspace = await owner.workspace(name, **fields)
    op_id = await api.busy(workspace)
    await api.deps.database.execute(
        "UPDATE operations SET outcome = 'FAILED', finished_at = now(), error_reason = 'Timeout',"
        " error_message = 'it took too long' WHERE id = $1",
        op_id,
    )
    await api.row(
        workspace,
        phase="ERROR",
        error_reason="Timeout",
        error_count=1,
        operation="NONE",
        op_id=None,
        op_started_at=None,
    )
    return workspace


async def test_an_admin_is_told_what_the_owner_is_told(api: Api, alice: Person, admin: Person) -> None:
    """The explanation and the operation log are the same, to the letter; of the workspace itself all but what its
    owner wrote into it."""
    workspace = await in_error(api, alice, description="a secret plan")
    await alice("PATCH", f"{OWN}/{workspace}", {"memo": "a private thought"})
    for path in (f"/{workspace}/explain", f"/{workspace}/operations?limit=1"):
        hers, told = await alice("GET", OWN + path), await admin("GET", ANY + path)
        assert (told.status, told.json) == (200, hers.json)
    assert (await admin("GET", f"{ANY}/{workspace}/operations")).json["items"][0]["error_message"] == "it took too long"
    hers, told = await alice("GET", f"{OWN}/{workspace}"), await admin("GET", f"{ANY}/{workspace}")
    kept = {"description", "memo"}
    assert told.json == {"owner": "alice"} | {name: value for name, value in hers.json.items() if name not in kept}
    assert (await admin("GET", ANY)).json["items"] == [told.json]
    assert b"secret plan" not in told.body
    assert b"private thought" not in told.body


async def test_an_admin_recovers_and_deletes(api: Api, alice: Person, admin: Person) -> None:
    """With the wakes that an owner's request sends, and the refusals that an owner gets."""
    workspace = await in_error(api, alice)
    api.wakes.woken.clear()
    recovered = await admin("POST", f"{ANY}/{workspace}/recover")
    assert (recovered.status, recovered.json["owner"], recovered.json["error_reason"]) == (200, "alice", None)
    assert api.wakes.woken == [workspace]
    await api.row(workspace, phase="STANDBY")
    assert (await admin("POST", f"{ANY}/{workspace}/recover")).code == "not_in_error"
    await api.busy(workspace)
    assert (await admin("DELETE", f"{ANY}/{workspace}")).code == "operation_running"
    await api.row(workspace, operation="NONE", op_id=None, op_started_at=None)
    assert (await admin("DELETE", f"{ANY}/{workspace}")).status == 204
    assert api.wakes.woken == [workspace, workspace]
    assert (await alice("GET", f"{OWN}/{workspace}")).json["desired_state"] == "DELETED"
    assert (await admin("GET", f"{ANY}/{workspace}")).json["desired_state"] == "DELETED"
    await api.row(workspace, phase="DELETED")
    for method, path in (
        ("GET", ""),
        ("GET", "/explain"),
        ("GET", "/operations"),
        ("POST", "/recover"),
        ("DELETE", ""),
    ):
        assert (await admin(method, f"{ANY}/{workspace}{path}")).code == "not_found", (method, path)


async def test_what_an_admin_did_is_known(api: Api, alice: Person, admin: Person) -> None:
    """To the audit log, by name, kind and request; and to the owner, who did not do it."""
    workspace = await in_error(api, alice)
    await admin("POST", f"{ANY}/{workspace}/recover", X_Request_Id="req-1")
    told = (await alice("GET", f"{OWN}/{workspace}/explain")).json["last_change"]
    assert (told["actor_kind"], told["actor"]) == ("admin", "admin")
    assert told["words"] == "admin recovered it from Timeout"
    await admin("DELETE", f"{ANY}/{workspace}", X_Request_Id="req-2")
    changes, _ = await api.deps.audit.page(limit=2, offset=0, subject_id=workspace)
    assert [(one.action, one.actor_kind, one.actor, one.request_id) for one in changes] == [
        ("deleted", "admin", "admin", "req-2"),
        ("recovered", "admin", "admin", "req-1"),
    ]


@pytest.mark.parametrize("whose", ["the owner's", "the admin's"])
async def test_the_limits_are_the_owners(database_url: str, whose: str) -> None:
    """A recovered workspace takes one of its owner's places: those of the admin don't matter."""
    async with serving(database_url, ApiConfig(default_image="ide", limits=Limits(1, 100))) as api:
        alice, admin = await api.person("alice"), await api.person("admin", is_admin=True)
        workspace = await in_error(api, alice, desired_state="RUNNING")
        await (alice if whose == "the owner's" else admin).workspace("other", desired_state="RUNNING")
        answer = await admin("POST", f"{ANY}/{workspace}/recover")
        if whose == "the owner's":
            assert (answer.status, answer.code) == (429, "limit_per_user")
            assert (await alice("GET", f"{OWN}/{workspace}")).json["error_reason"] == "Timeout"
        else:
            assert answer.status == 200


async def test_where_a_workspace_should_be_is_its_owners(api: Api, alice: Person, admin: Person) -> None:
    """An admin mends and deletes; there is no way here to start, stop, archive, rename or change it."""
    workspace = await alice.workspace()
    answer = await admin("PATCH", f"{ANY}/{workspace}", {"desired_state": "ARCHIVED"})
    assert (answer.status, answer.code) == (405, "method_not_allowed")
