"""Workspaces that are not RUNNING: what wakes them, what doesn't, and what is answered (SPEC 13, 11)."""

import asyncio
import json
import re

import pytest

from domain.limits import Limits
from domain.model import WorkspaceId
from tests.proxy.world import Person, Reply, World, serving


def kind(answer: Reply) -> str:
    """Which page it is."""
    assert answer.get("content-type") == "text/html; charset=utf-8"
    found = re.search(rb'data-page="(\w+)"', answer.body)
    assert found
    return found[1].decode()


async def test_opening_it_wakes_it(world: World, alice: Person) -> None:
    """desired_state first, then the signal; the page that is shown follows it. HEAD is an opening as well."""
    for method in ("GET", "HEAD"):
        workspace_id = await world.row(alice, phase="STANDBY", desired_state="STANDBY")
        answer = await world.open(f"/w/{workspace_id}/deep/link?x", alice, method)
        assert answer.status == 200
        assert await world.desired(workspace_id) == "RUNNING"
        assert world.wakes.woken[-1] == workspace_id
        assert answer.get("cache-control") == "no-store"


async def test_the_page_that_follows(world: World, alice: Person) -> None:
    """Names the workspace, safely, and knows which one to follow."""
    workspace_id = await world.row(alice, phase="STANDBY", desired_state="STANDBY", name="my <b>one</b>")
    answer = await world.open(f"/w/{workspace_id}/", alice)
    assert kind(answer) == "following"
    assert b"my &lt;b&gt;one" in answer.body
    assert f'data-workspace="{workspace_id}"'.encode() in answer.body


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Accept": "*/*"},
        {"Accept": "application/json"},
        {"Accept": "text/html", "X_Requested_With": "XMLHttpRequest"},
        {"Accept": "text/html", "Sec_Fetch_Mode": "cors", "Sec_Fetch_Site": "same-origin", "Sec_Fetch_Dest": "empty"},
        {"Accept": "text/html", "Sec_Fetch_Mode": "no-cors", "Sec_Fetch_Dest": "script"},
        {"Accept": "text/html", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"},
        {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document", "Sec_Purpose": "prefetch;prerender"},
        {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document", "Purpose": "prefetch"},
        {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document", "X_Codehub_No_Activity": "1"},
    ],
)
async def test_nothing_else_wakes_it(world: World, alice: Person, headers: dict[str, str]) -> None:
    """Scripts, assets, frames, probes and what a browser does in advance: 503 with Retry-After."""
    workspace_id = await world.row(alice, phase="STANDBY", desired_state="STANDBY")
    answer = await world.get(f"/w/{workspace_id}/", alice, **headers)
    assert answer.status == 503
    assert int(answer.get("retry-after") or 0) > 0
    assert json.loads(answer.body)["error"]["code"] == "workspace_not_running"
    assert await world.desired(workspace_id) == "STANDBY"
    assert world.wakes.woken == []


async def test_no_method_but_get_wakes_it(world: World, alice: Person) -> None:
    """A form that is sent to a sleeping workspace is not an opening."""
    workspace_id = await world.row(alice, phase="STANDBY", desired_state="STANDBY")
    answer = await world.open(f"/w/{workspace_id}/", alice, "POST")
    assert answer.status == 503
    assert world.wakes.woken == []


async def test_an_old_browser_wakes_it(world: World, alice: Person) -> None:
    """One that sends no Sec-Fetch headers is known by what it accepts."""
    workspace_id = await world.row(alice, phase="STANDBY", desired_state="STANDBY")
    answer = await world.get(f"/w/{workspace_id}/", alice, Accept="text/html,application/xhtml+xml")
    assert kind(answer) == "following"
    assert world.wakes.woken == [workspace_id]


@pytest.mark.parametrize("operation", ["STARTING", "ARCHIVING", "STOPPING"])
async def test_an_operation_is_followed(world: World, alice: Person, operation: str) -> None:
    """Nothing is asked for while one runs; others come back later."""
    phase = "RUNNING" if operation == "STOPPING" else "STANDBY"
    more = {"archive_op_id": "0b8f6f0e-6a7b-4c7e-9d3a-2f1e5c4b3a21"} if operation == "ARCHIVING" else {}
    workspace_id = await world.row(alice, "127.0.0.1:1", phase=phase, desired_state="STANDBY", **more)
    await world.busy(workspace_id, operation)
    answer = await world.open(f"/w/{workspace_id}/", alice)
    assert (answer.status, kind(answer)) == (200, "following")
    assert (await world.get(f"/w/{workspace_id}/", alice)).status == 503
    assert world.wakes.woken == []
    assert await world.desired(workspace_id) == "STANDBY"


@pytest.mark.parametrize(
    ("phase", "page", "code"),
    [
        ("ARCHIVED", "restore_needed", "workspace_archived"),
        ("PENDING", "start_needed", "workspace_pending"),
        ("ERROR", "error", "workspace_in_error"),
    ],
)
async def test_a_persons_decision(world: World, alice: Person, phase: str, page: str, code: str) -> None:
    """502: a page with a button, or its words as JSON; nothing happens by itself."""
    reason = {"error_reason": "ArchiveCorrupted"} if phase == "ERROR" else {}
    workspace_id = await world.row(alice, phase=phase, desired_state="ARCHIVED", **reason)
    answer = await world.open(f"/w/{workspace_id}/", alice)
    assert (answer.status, kind(answer)) == (502, page)
    assert b"<button" in answer.body
    if reason:
        assert b"ArchiveCorrupted" in answer.body
    answer = await world.get(f"/w/{workspace_id}/", alice)
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (502, code)
    assert world.wakes.woken == []


async def test_a_dead_workspace(world: World, alice: Person) -> None:
    """RUNNING, but nothing listens: 502, a page that tries again."""
    workspace_id = await world.row(alice, "127.0.0.1:1")
    answer = await world.open(f"/w/{workspace_id}/", alice)
    assert (answer.status, kind(answer)) == (502, "unreachable")
    answer = await world.get(f"/w/{workspace_id}/", alice)
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (502, "workspace_unreachable")


async def test_a_workspace_that_just_stopped(world: World, alice: Person) -> None:
    """What is remembered says RUNNING, the connection says no: it is looked up again, and woken."""
    workspace_id = await world.row(alice, "127.0.0.1:1")
    await world.proxy.directory.find(WorkspaceId(workspace_id))
    await world.deps.database.execute(
        "UPDATE workspaces SET phase = 'STANDBY', desired_state = 'STANDBY' WHERE id = $1", workspace_id
    )
    answer = await world.open(f"/w/{workspace_id}/", alice)
    assert (answer.status, kind(answer)) == (200, "following")
    assert world.wakes.woken == [workspace_id]


async def test_the_limit(database_url: str, redis_url: str) -> None:
    """502 with the user's own that hold a place, and a button for those that can be stopped; nothing is changed."""
    async with serving(database_url, redis_url, limits=Limits(max_running_per_user=2)) as world:
        alice, bob = await world.person("alice"), await world.person("bob")
        running = await world.row(alice, name="the <running> one")
        starting = await world.row(alice, name="starting", phase="STANDBY", desired_state="RUNNING")
        await world.busy(starting, "STARTING")
        others = await world.row(bob, name="bobs")
        broken = await world.row(alice, name="broken", phase="ERROR", error_reason="Timeout")
        asleep = await world.row(alice, phase="STANDBY", desired_state="STANDBY")
        answer = await world.open(f"/w/{asleep}/", alice)
        assert (answer.status, kind(answer)) == (502, "limit")
        assert f'href="/w/{running}/"'.encode() in answer.body
        assert b"the &lt;running&gt; one" in answer.body
        assert f'href="/w/{starting}/"'.encode() in answer.body
        assert re.findall(rb'data-do="stop" data-id="([^"]+)"', answer.body) == [running.encode()]
        assert others.encode() not in answer.body
        assert broken.encode() not in answer.body
        assert await world.desired(asleep) == "STANDBY"
        assert world.wakes.woken == []


async def test_the_global_limit(database_url: str, redis_url: str) -> None:
    """Others hold all places: said, without telling who."""
    async with serving(database_url, redis_url, limits=Limits(max_running_global=1)) as world:
        alice, bob = await world.person("alice"), await world.person("bob")
        taken = await world.row(bob, name="bobs")
        asleep = await world.row(alice, phase="STANDBY", desired_state="STANDBY")
        answer = await world.open(f"/w/{asleep}/", alice)
        assert (answer.status, kind(answer)) == (502, "limit")
        assert taken.encode() not in answer.body
        assert b"bobs" not in answer.body


async def test_twenty_tabs_at_once(database_url: str, redis_url: str) -> None:
    """One place left and twenty workspaces opened at once: one is woken, nineteen are told (PROMISE 22)."""
    async with serving(database_url, redis_url, limits=Limits(max_running_per_user=1)) as world:
        alice = await world.person("alice")
        asleep = [await world.row(alice, phase="STANDBY", desired_state="STANDBY") for _ in range(20)]
        answers = await asyncio.gather(*(world.open(f"/w/{one}/", alice) for one in asleep))
        assert sorted(answer.status for answer in answers) == [200] + [502] * 19
        assert len(world.wakes.woken) == 1


async def test_temporal_away(world: World, alice: Person) -> None:
    """What was asked for is recorded, and the page shown all the same: the coordinator wakes it later."""
    world.wakes.away = True
    workspace_id = await world.row(alice, phase="STANDBY", desired_state="STANDBY")
    assert kind(await world.open(f"/w/{workspace_id}/", alice)) == "following"
    assert await world.desired(workspace_id) == "RUNNING"


async def test_deleted_in_between(world: World, alice: Person) -> None:
    """Remembered as asleep, deleted since: never woken, and no error."""
    workspace_id = await world.row(alice, phase="STANDBY", desired_state="STANDBY")
    await world.proxy.directory.find(WorkspaceId(workspace_id))
    await world.deps.database.execute(
        "UPDATE workspaces SET desired_state = 'DELETED', deleted_at = now() WHERE id = $1", workspace_id
    )
    assert kind(await world.open(f"/w/{workspace_id}/", alice)) == "following"
    await world.deps.database.execute("UPDATE workspaces SET phase = 'DELETED' WHERE id = $1", workspace_id)
    world.proxy.directory.invalidate(WorkspaceId(workspace_id))
    assert (await world.open(f"/w/{workspace_id}/", alice)).status == 404
    assert world.wakes.woken == []


async def test_pages_are_safe_to_show(world: World, alice: Person) -> None:
    """Nothing is loaded from anywhere, nothing runs but the page's own script, and nobody frames it."""
    workspace_id = await world.row(alice, phase="ARCHIVED", desired_state="ARCHIVED", name="</script><b>$title")
    policies = set()
    for _ in range(2):
        answer = await world.open(f"/w/{workspace_id}/", alice)
        policy = answer.get("content-security-policy") or ""
        nonce = re.search(r"script-src 'nonce-([\w-]{20,})'", policy)
        assert nonce
        assert f'<script nonce="{nonce[1]}">'.encode() in answer.body
        assert policy.startswith("default-src 'none'; ")
        assert "frame-ancestors 'none'" in policy
        assert b"</script><b>" not in answer.body
        assert not re.findall(rb"(?:src|href)=[\"']?(?:https?:)?//", answer.body)
        policies.add(policy)
    assert len(policies) == 2
