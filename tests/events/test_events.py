"""Live events on a real PostgreSQL and Redis, over HTTP (SPEC 9)."""

import asyncio
import time
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from adapters.redis.events import Event, EventBus, EventKind
from domain.model import WorkspaceId
from starter.api import events
from tests.api.world import Api, serving
from tests.events.listening import listening
from tests.events.stream import watching
from tests.faults.proxy import FaultProxy, server_of, through

FORGOTTEN_SECONDS = 15.0
"""Ten, and what a busy machine takes."""


@pytest.fixture
async def api(database_url: str, bus: EventBus) -> AsyncIterator[Api]:
    async with serving(database_url, bus=bus) as api, listening(database_url, api, bus):
        yield api


async def test_current_state_first_then_changes(api: Api) -> None:
    alice = await api.person("alice")
    first = await alice.workspace("first")
    async with watching(alice) as stream:
        assert (await stream.until(first))["name"] == "first"
        second = await alice.workspace("second")
        await stream.until(second, name="second")
        await alice("PATCH", f"/api/v1/workspaces/{first}", {"memo": "note"})
        body = await stream.until(first, memo="note")
        whole = (await alice("GET", f"/api/v1/workspaces/{first}")).json
        assert body == whole
        op_id = await api.busy(first)
        await stream.until(first, operation="STARTING")
        assert op_id


async def test_only_the_own_workspaces(api: Api) -> None:
    alice, bob = await api.person("alice"), await api.person("bob")
    async with watching(bob) as stream:
        secret = await alice.workspace("secret")
        await alice("PATCH", f"/api/v1/workspaces/{secret}", {"name": "still secret"})
        mine = await bob.workspace("mine")
        await stream.until(mine)
        assert all(body.get("id") != secret for _, body in stream.seen)


async def test_nobody_without_a_session(api: Api) -> None:
    assert (await api("GET", "/api/v1/events")).status == 401


async def test_a_deletion_is_told(api: Api) -> None:
    alice = await api.person("alice")
    workspace = await alice.workspace()
    async with watching(alice) as stream:
        await stream.until(workspace)
        await alice("DELETE", f"/api/v1/workspaces/{workspace}")
        await stream.until(workspace, desired_state="DELETED")
        await api.row(workspace, phase="DELETED")
        assert await stream.next("workspace_deleted") == ("workspace_deleted", {"id": workspace})


async def test_a_client_that_comes_back_hears_what_was_deleted_meanwhile(api: Api) -> None:
    """Last-Event-ID: the current state, and what is no more."""
    alice = await api.person("alice")
    gone, kept = await alice.workspace("gone"), await alice.workspace("kept")
    async with watching(alice) as stream:
        await stream.until(gone)
        last_id = stream.last_id
    await alice("DELETE", f"/api/v1/workspaces/{gone}")
    await api.row(gone, phase="DELETED")
    await alice("PATCH", f"/api/v1/workspaces/{kept}", {"memo": "new"})
    async with watching(alice, last_id) as stream:
        await stream.until(kept, memo="new")
        assert await stream.next("workspace_deleted") == ("workspace_deleted", {"id": gone})


@pytest.mark.parametrize("last_id", ["", "x", "-1", "99999999999999999999999", "0"])
async def test_any_last_event_id_is_fine(api: Api, last_id: str) -> None:
    alice = await api.person("alice")
    workspace = await alice.workspace()
    async with watching(alice, last_id) as stream:
        await stream.until(workspace)


async def test_progress_is_told(api: Api, bus: EventBus) -> None:
    alice = await api.person("alice")
    workspace = await alice.workspace()
    async with watching(alice) as stream:
        await stream.until(workspace)
        details = {"operation": "ARCHIVING", "bytes_done": 5, "bytes_total": 10}
        await bus.publish([Event(EventKind.PROGRESS, alice.id, WorkspaceId(workspace), details)])
        _, body = await stream.next("workspace_progress")
        assert body == {"id": workspace, **details}


async def test_heartbeats(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_SECONDS", 0.1)
    alice = await api.person("alice")
    async with watching(alice) as stream:
        assert await stream.next("heartbeat") == ("heartbeat", {})


async def test_a_large_memo_does_not_stop_the_notification(api: Api) -> None:
    """NOTIFY takes 8,000 bytes at most: it carries ids, never contents."""
    alice = await api.person("alice")
    workspace = await alice.workspace()
    async with watching(alice) as stream:
        await stream.until(workspace)
        memo = "ü" * 10_000
        assert (await alice("PATCH", f"/api/v1/workspaces/{workspace}", {"memo": memo})).status == 200
        await stream.until(workspace, memo=memo)


async def test_redis_gone_and_back_shows_what_changed_meanwhile(api: Api, bus: EventBus) -> None:
    """PROMISE 25: live updates come back by themselves, and the last state is not missed."""
    alice = await api.person("alice")
    workspace = await alice.workspace()
    async with watching(alice) as stream:
        await stream.until(workspace)
        # What a restart does to everybody who is connected, publisher and subscribers alike.
        await bus.redis.client_kill_filter(_type="pubsub")
        await alice("PATCH", f"/api/v1/workspaces/{workspace}", {"memo": "while away"})
        await stream.until(workspace, memo="while away")


async def test_a_listener_that_takes_over_misses_no_final_state(database_url: str, bus: EventBus) -> None:
    """PROMISE 23: what was committed while nobody listened is shown once somebody does."""
    async with serving(database_url, bus=bus) as api:
        alice = await api.person("alice")
        workspace = await alice.workspace()
        async with watching(alice) as stream:
            await stream.until(workspace)
            async with listening(database_url, api, bus):
                await alice("PATCH", f"/api/v1/workspaces/{workspace}", {"memo": "one"})
                await stream.until(workspace, memo="one")
            await alice("PATCH", f"/api/v1/workspaces/{workspace}", {"memo": "unheard"})
            async with listening(database_url, api, bus):
                await stream.until(workspace, memo="unheard")


async def test_a_listener_whose_idle_connection_is_forgotten_hears_again(database_url: str, bus: EventBus) -> None:
    """By a load balancer or an address translation that drops the flow and tells neither end: the leader is one still,
    and what changes meanwhile is shown all the same, within ten seconds or so."""
    async with (
        FaultProxy(server_of(database_url)) as proxy,
        serving(database_url, bus=bus) as api,
        listening(database_url, api, bus, hears_through=through(database_url, proxy)) as leader,
    ):
        alice = await api.person("alice")
        workspace = await alice.workspace()
        async with watching(alice) as stream:
            await stream.until(workspace)
            led = leader.leading_since
            proxy.forget()
            await alice("PATCH", f"/api/v1/workspaces/{workspace}", {"memo": "unheard"})
            async with asyncio.timeout(FORGOTTEN_SECONDS):
                await stream.until(workspace, memo="unheard")
            await alice("PATCH", f"/api/v1/workspaces/{workspace}", {"memo": "heard"})
            await stream.until(workspace, memo="heard")
        assert leader.leading_since == led is not None


async def test_what_others_publish_does_no_harm(api: Api, bus: EventBus) -> None:
    alice = await api.person("alice")
    workspace = await alice.workspace()
    async with watching(alice) as stream:
        await stream.until(workspace)
        for junk in (b"", b"{", b"[]", b'{"type": "unknown"}', b'{"type": "workspace_updated", "id": "x"}', b"\xff"):
            await bus.redis.publish(f"{bus.prefix}{alice.id}", junk)
        await bus.publish([Event(EventKind.UPDATED, alice.id, WorkspaceId(str(uuid4())))])
        await alice("PATCH", f"/api/v1/workspaces/{workspace}", {"memo": "fine"})
        await stream.until(workspace, memo="fine")


async def test_a_client_that_does_not_read_hurts_nobody(api: Api) -> None:
    """Its events are merged, not piled up, and others get theirs."""
    alice = await api.person("alice")
    workspace = await alice.workspace()
    async with watching(alice), watching(alice) as reading:
        await reading.until(workspace)
        for number in range(100):
            await alice("PATCH", f"/api/v1/workspaces/{workspace}", {"memo": f"{number} " + "x" * 9000})
        began = time.monotonic()
        await reading.until(workspace, memo="99 " + "x" * 9000)
        # Far sooner than the one that does not read is given up.
        assert time.monotonic() - began < events._SLOW_SECONDS / 2
        assert api.deps.hub is not None
        for screens in api.deps.hub._screens.values():
            assert all(len(screen.updated) <= 1 for screen in screens)
