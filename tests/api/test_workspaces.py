from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.api.world import NOBODY, Api, Person

FIELDS = [
    *("id", "owner_user_id", "name", "description", "memo", "image_ref", "phase", "operation", "desired_state"),
    *("conditions", "archive_key", "error_reason", "error_count", "progress", "standby_ttl_seconds"),
    *("archive_ttl_seconds", "created_at", "updated_at", "last_access_at", "phase_changed_at", "op_started_at", "node"),
]
PATH = "/api/v1/workspaces"


async def test_created(api: Api, alice: Person) -> None:
    """A create answers 201 with every field of SPEC 12 and no other, and its workflow is woken."""
    answer = await alice("POST", PATH, {"name": "one"})

    assert answer.status == 201
    made = answer.json
    assert list(made) == FIELDS
    assert made["owner_user_id"] == alice.id
    assert (made["name"], made["description"], made["memo"], made["image_ref"]) == ("one", "", "", "ide:latest")
    assert (made["phase"], made["operation"], made["desired_state"]) == ("PENDING", "NONE", "RUNNING")
    assert (made["conditions"], made["progress"], made["error_reason"], made["error_count"]) == ({}, None, None, 0)
    assert made["created_at"].endswith("Z")
    assert datetime.fromisoformat(made["created_at"]).utcoffset() == timedelta(0)
    assert api.wakes.woken == [made["id"]]
    assert (await alice("GET", f"{PATH}/{made['id']}")).json == made


async def test_every_field_of_a_create(alice: Person) -> None:
    """What is given is kept."""
    given = {
        "name": "with all",
        "description": "zwölf\nBoxkämpfer 🥊",
        "image_ref": "registry.example:5000/team/ide@sha256:00ff",
        "desired_state": "ARCHIVED",
        "standby_ttl_seconds": 0,
        "archive_ttl_seconds": 86400,
    }
    answer = await alice("POST", PATH, given)
    assert answer.status == 201
    assert {name: answer.json[name] for name in given} == given


async def test_name_is_unique_per_owner(api: Api, alice: Person, bob: Person) -> None:
    """A name is taken for its owner only, and only until the workspace is deleted."""
    first = await alice.workspace("same")
    second = await alice.workspace("other")

    again = await alice("POST", PATH, {"name": "same", "desired_state": "STANDBY"})
    assert (again.status, again.code) == (409, "name_taken")
    renamed = await alice("PATCH", f"{PATH}/{second}", {"name": "same", "memo": "not kept"})
    assert (renamed.status, renamed.code) == (409, "name_taken")
    assert (await alice("GET", f"{PATH}/{second}")).json["memo"] == ""
    await bob.workspace("same")
    assert (await alice("DELETE", f"{PATH}/{first}")).status == 204
    await alice.workspace("same")


async def test_pages(alice: Person, bob: Person) -> None:
    """Pages follow one stable order, newest first; total counts all, also beyond the end."""
    made = [await alice.workspace(f"w{number}") for number in range(7)]
    await bob.workspace("not hers")

    pages = [(await alice("GET", f"{PATH}?limit=3&offset={offset}")).json for offset in (0, 3, 6, 9)]

    assert [page["total"] for page in pages] == [7, 7, 7, 7]
    assert [item["id"] for page in pages for item in page["items"]] == list(reversed(made))
    assert (await alice("GET", PATH)).json["total"] == 7


async def test_order_of_equal_times(api: Api, alice: Person) -> None:
    """Workspaces made in the same moment still have one order."""
    made = [await alice.workspace(f"w{number}") for number in range(5)]
    await api.deps.database.execute("UPDATE workspaces SET created_at = '2026-01-01T00:00:00Z'")

    seen = [(await alice("GET", f"{PATH}?limit=1&offset={n}")).json["items"][0]["id"] for n in range(5)]

    assert seen == sorted(made, key=UUID)


async def test_phase_filter(api: Api, alice: Person) -> None:
    """Only that phase, and the total is that phase's."""
    one = await alice.workspace("one")
    await alice.workspace("two")
    await api.row(one, phase="STANDBY")

    found = (await alice("GET", f"{PATH}?phase=STANDBY")).json
    assert ([item["id"] for item in found["items"]], found["total"]) == ([one], 1)
    assert (await alice("GET", f"{PATH}?phase=RUNNING")).json == {"items": [], "total": 0}


async def test_bad_queries(alice: Person) -> None:
    """A query that can't be right is refused, and the message names the parameter."""
    for query in ("limit=0", "limit=201", "limit=x", "offset=-1", "phase=ASLEEP", "pahse=RUNNING"):
        answer = await alice("GET", f"{PATH}?{query}")
        assert (answer.status, answer.code) == (422, "invalid"), query
        assert query.partition("=")[0] in answer.message


async def test_deleting_and_deleted(api: Api, alice: Person) -> None:
    """A workspace can be read while DELETING; once DELETED it is gone from every route."""
    one = await alice.workspace()
    assert (await alice("DELETE", f"{PATH}/{one}")).status == 204
    assert api.wakes.woken == [one, one]
    await api.row(one, phase="DELETING")
    assert (await alice("GET", f"{PATH}/{one}")).json["desired_state"] == "DELETED"
    back = await alice("PATCH", f"{PATH}/{one}", {"desired_state": "RUNNING", "memo": "x"})
    assert (back.status, back.code) == (409, "deleting")

    await api.row(one, phase="DELETED")

    assert (await alice("GET", f"{PATH}/{one}")).status == 404
    assert (await alice("GET", f"{PATH}/{one}/operations")).status == 404
    assert (await alice("DELETE", f"{PATH}/{one}")).status == 404
    assert (await alice("PATCH", f"{PATH}/{one}", {"memo": "x"})).status == 404
    assert (await alice("GET", PATH)).json["total"] == 0


async def test_patch_of_metadata(api: Api, alice: Person) -> None:
    """Only what is given changes; null takes a TTL back to the default; nothing wakes the workflow."""
    one = await alice.workspace("one", description="first", standby_ttl_seconds=60, archive_ttl_seconds=70)
    api.wakes.woken.clear()

    changed = await alice("PATCH", f"{PATH}/{one}", {"memo": "remember", "standby_ttl_seconds": None})

    assert changed.status == 200
    names = ("name", "description", "memo", "standby_ttl_seconds", "archive_ttl_seconds")
    assert [changed.json[name] for name in names] == ["one", "first", "remember", None, 70]
    assert (await alice("PATCH", f"{PATH}/{one}", {})).json == changed.json
    assert api.wakes.woken == []


async def test_patch_of_desired_state(api: Api, alice: Person) -> None:
    """desired_state and metadata change together, then the workflow is woken."""
    one = await alice.workspace()
    api.wakes.woken.clear()

    answer = await alice("PATCH", f"{PATH}/{one}", {"desired_state": "RUNNING", "name": "renamed"})

    assert answer.status == 200
    assert (answer.json["desired_state"], answer.json["name"]) == ("RUNNING", "renamed")
    assert api.wakes.woken == [one]


@pytest.mark.parametrize("state", ["operation_running", "in_error"])
async def test_refused_patch_changes_nothing(api: Api, alice: Person, state: str) -> None:
    """409 while an operation runs or in ERROR; the metadata of the same request stays as it was too."""
    one = await alice.workspace()
    if state == "operation_running":
        await api.busy(one)
    else:
        await api.row(one, phase="ERROR", error_reason="Timeout", error_count=1)
    api.wakes.woken.clear()

    answer = await alice("PATCH", f"{PATH}/{one}", {"desired_state": "RUNNING", "memo": "x", "name": "other"})

    assert (answer.status, answer.code) == (409, state)
    after = (await alice("GET", f"{PATH}/{one}")).json
    assert (after["desired_state"], after["memo"], after["name"]) == ("STANDBY", "", "one")
    assert api.wakes.woken == []
    same = await alice("PATCH", f"{PATH}/{one}", {"desired_state": "STANDBY", "memo": "x"})
    assert (same.status, same.json["memo"]) == (200, "x")


async def test_delete(api: Api, alice: Person) -> None:
    """204 from any phase, also ERROR; 409 while an operation runs."""
    one, two = await alice.workspace("one"), await alice.workspace("two")
    await api.busy(one)
    busy = await alice("DELETE", f"{PATH}/{one}")
    assert (busy.status, busy.code) == (409, "operation_running")
    await api.row(two, phase="ERROR", error_reason="DataLost", error_count=1)
    assert (await alice("DELETE", f"{PATH}/{two}")).status == 204
    assert (await alice("DELETE", f"{PATH}/{NOBODY}")).status == 404


async def test_recover(api: Api, alice: Person) -> None:
    """Recover clears the error and wakes; 409 when there is none."""
    one = await alice.workspace()
    calm = await alice("POST", f"{PATH}/{one}/recover")
    assert (calm.status, calm.code) == (409, "not_in_error")
    await api.row(one, phase="ERROR", error_reason="Timeout", error_count=3)
    api.wakes.woken.clear()

    answer = await alice("POST", f"{PATH}/{one}/recover")

    assert (answer.status, answer.json["error_reason"], answer.json["error_count"]) == (200, None, 0)
    assert api.wakes.woken == [one]


async def test_progress_and_operation_log(api: Api, alice: Person) -> None:
    """Progress is that of the operation under way; the log tells what, when, how long, attempts, outcome and bytes."""
    one = await alice.workspace()
    first = await api.busy(one, "STARTING")
    assert (await alice("GET", f"{PATH}/{one}")).json["progress"] is None
    await api.deps.database.execute(
        "UPDATE operations SET bytes_done = 10, bytes_total = 40, attempts = 2 WHERE id = $1", first
    )
    expected: dict[str, Any] = {"bytes_done": 10, "bytes_total": 40, "attempt": 2}
    expected |= {"stage": "TRANSFERRING", "bytes_per_second": None, "eta_seconds": None}
    assert (await alice("GET", f"{PATH}/{one}")).json["progress"] == expected
    assert (await alice("GET", PATH)).json["items"][0]["progress"] == expected
    await api.row(one, operation="NONE", op_id=None, op_started_at=None)
    await api.deps.database.execute(
        "UPDATE operations SET started_at = now() - interval '90 seconds', finished_at = now() - interval '60 seconds',"
        " outcome = 'FAILED', error_reason = 'Timeout', error_message = 'too slow' WHERE id = $1",
        first,
    )
    second = await api.busy(one, "STOPPING")

    log: Any = (await alice("GET", f"{PATH}/{one}/operations")).json

    assert log["total"] == 2
    latest, earlier = log["items"]
    assert (latest["id"], latest["operation"], latest["outcome"]) == (second, "STOPPING", None)
    assert (earlier["id"], earlier["previous_phase"], earlier["attempts"]) == (first, "STANDBY", 2)
    assert (earlier["outcome"], earlier["error_reason"]) == ("FAILED", "Timeout")
    assert (earlier["error_message"], earlier["bytes_done"], earlier["bytes_total"]) == ("too slow", 10, 40)
    assert abs(earlier["duration_seconds"] - 30) < 1
    assert (await alice("GET", f"{PATH}/{one}/operations?limit=1&offset=5")).json == {"items": [], "total": 2}


async def test_conditions(api: Api, alice: Person) -> None:
    """Conditions are shown as SPEC 2 writes them."""
    one = await alice.workspace()
    condition = {"status": "True", "reason": "Exists", "message": "", "last_transition_time": "2026-01-02T03:04:05Z"}
    await api.row(one, conditions={"storage.volume_ready": condition})
    assert (await alice("GET", f"{PATH}/{one}")).json["conditions"] == {"storage.volume_ready": condition}


async def test_temporal_away(api: Api, alice: Person) -> None:
    """What was recorded is acknowledged, quickly, although Temporal could not be told (PROMISE 11)."""
    api.wakes.away = True
    one = await alice.workspace("one")
    api.wakes.hang = True
    assert (await alice("PATCH", f"{PATH}/{one}", {"desired_state": "ARCHIVED"})).status == 200
    assert (await alice("GET", f"{PATH}/{one}")).json["desired_state"] == "ARCHIVED"
    assert (await alice("DELETE", f"{PATH}/{one}")).status == 204
