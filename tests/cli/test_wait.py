"""`--wait` against a real API with real live events; the test plays the controller."""

import asyncio
import os
import re
import signal
from contextlib import suppress
from typing import Any

import pytest

from adapters.redis.events import Event, EventBus, EventKind
from domain.model import WorkspaceId
from tests.api.world import Api, Person, serving, until
from tests.cli.console import Cli, Result, Terminal
from tests.events.telling import again_and_again
from tests.faults.proxy import FaultProxy

ENDED = {"operation": "NONE", "op_id": None, "op_started_at": None}


async def wanted(api: Api, workspace: str, state: str) -> None:
    """Return once the command has asked for it."""
    query = "SELECT desired_state FROM workspaces WHERE id = $1"

    async def asked() -> bool:
        return bool(await api.deps.database.fetchval(query, workspace) == state)

    await until(asked, 30)


async def told(process: asyncio.subprocess.Process, text: str) -> None:
    assert process.stderr
    async with asyncio.timeout(30):
        while text not in (await process.stderr.readline()).decode():
            pass


async def ended(process: asyncio.subprocess.Process) -> Result:
    async with asyncio.timeout(30):
        out, err = await process.communicate()
    return Result(process.returncode or 0, out.decode(), err.decode())


async def test_it_ends_where_it_was_to_go(cli: Cli, api: Api, alice: Person) -> None:
    workspace = await alice.workspace("demo")
    async with cli.running("start", "demo", "--wait", "--json") as process:
        await wanted(api, workspace, "RUNNING")
        await api.busy(workspace, "STARTING")
        await told(process, "demo: STARTING")
        await api.deps.database.execute("UPDATE operations SET error_message = 'no such image'")
        await api.row(workspace, error_count=1)
        await told(process, "demo: STARTING, failed 1 time: no such image")
        await api.row(workspace, phase="RUNNING", error_count=0, **ENDED)
        result = await ended(process)
    assert (result.code, result.json["phase"], result.json["operation"]) == (0, "RUNNING", "NONE")


async def test_two_steps_and_their_progress(cli: Cli, api: Api, alice: Person, bus: EventBus) -> None:
    """RUNNING → ARCHIVED is STOPPING, then ARCHIVING; at a terminal each has its line, and bytes have a bar."""
    workspace = await alice.workspace("demo")
    await api.row(workspace, phase="RUNNING")
    details: dict[str, Any] = {"operation": "ARCHIVING", "bytes_done": 50_000_000, "bytes_total": 200_000_000}
    details |= {"bytes_per_second": 25_000_000, "eta_seconds": 6.0}
    event = Event(EventKind.PROGRESS, alice.id, WorkspaceId(workspace), details)
    with Terminal(cli, "archive", "demo", "--wait", columns=80) as terminal:
        await wanted(api, workspace, "ARCHIVED")
        await api.busy(workspace, "STOPPING")
        await asyncio.to_thread(terminal.until, "STOPPING")
        await api.row(workspace, phase="STANDBY", **ENDED)
        await api.deps.database.execute("UPDATE operations SET outcome = 'SUCCEEDED', finished_at = now()")
        await api.row(workspace, archive_op_id=workspace)
        await api.busy(workspace, "ARCHIVING")
        await asyncio.to_thread(terminal.until, "ARCHIVING")
        async with again_and_again(bus, event):
            await asyncio.to_thread(terminal.until, "50.0 MB of 200 MB, 25.0 MB/s, 6.0 s left")
        details |= {"bytes_done": 200_000_000, "eta_seconds": 0.0}
        async with again_and_again(bus, event):
            await asyncio.to_thread(terminal.until, "200 MB of 200 MB")
        # Without an event: whoever looks is told the same.
        await api.deps.database.execute(
            "UPDATE operations SET bytes_done = 80000000, bytes_total = 200000000, stage = 'VERIFYING',"
            " bytes_per_second = 40000000, told_at = now() + interval '1 hour' WHERE outcome IS NULL"
        )
        await asyncio.to_thread(terminal.until, "80.0 MB of 200 MB, 3.0 s left")
        assert re.search(r"ARCHIVING, verifying +[\d.]+ s +━.*80\.0 MB of 200 MB", terminal.screen), terminal.screen
        await api.row(workspace, phase="ARCHIVED", archive_key="k", **ENDED)
        assert await asyncio.to_thread(terminal.end) == 0
    assert "✓ STOPPING" in terminal.screen
    assert re.search(r"✓ ARCHIVING +[\d.]+ s +200 MB", terminal.screen)
    assert "demo is ARCHIVED (" in terminal.screen


async def test_an_error_ends_it_with_its_reason(cli: Cli, api: Api, alice: Person) -> None:
    workspace = await alice.workspace("demo")
    async with cli.running("start", "demo", "--wait") as process:
        await wanted(api, workspace, "RUNNING")
        op = await api.busy(workspace, "STARTING")
        # Before the phase: whoever is told of that looks for the message at once.
        await api.deps.database.execute(
            "UPDATE operations SET outcome = 'FAILED', finished_at = now(), error_message = 'no such tag'"
            " WHERE id = $1",
            op,
        )
        await api.row(workspace, phase="ERROR", error_reason="ImagePullFailed", **ENDED)
        result = await ended(process)
    assert result.code == 8
    for words in ("ImagePullFailed", "no such tag", "then recover"):
        assert words in result.err


async def test_recover_waits_beyond_the_error_that_it_came_from(cli: Cli, api: Api, alice: Person) -> None:
    workspace = await alice.workspace("demo")
    await api.row(workspace, phase="ERROR", error_reason="Timeout")
    async with cli.running("recover", "demo", "--wait") as process:

        async def recovered() -> bool:
            query = "SELECT error_reason IS NULL FROM workspaces WHERE id = $1"
            return bool(await api.deps.database.fetchval(query, workspace))

        await until(recovered, 30)
        await api.row(workspace, phase="STANDBY")
        result = await ended(process)
    assert (result.code, result.out.split(" (")[0]) == (0, "demo is STANDBY")


async def test_a_deletion_is_followed_to_its_end(cli: Cli, api: Api, alice: Person) -> None:
    """Also of a workspace in ERROR, which stays so until its deletion begins; also when it is gone at once."""
    for name in ("slow", "at once"):
        workspace = await alice.workspace(name)
        await api.row(workspace, phase="ERROR", error_reason="Timeout")
        async with cli.running("rm", name, "--yes", "--wait") as process:
            await wanted(api, workspace, "DELETED")
            if name == "slow":
                await api.row(workspace, phase="DELETING", error_reason=None)
                await api.busy(workspace, "DELETING")
                await told(process, "slow: DELETING")
            await api.row(workspace, phase="DELETED", error_reason=None, **ENDED)
            result = await ended(process)
        assert (result.code, f"{name} is deleted" in result.out) == (0, True), result


async def test_someone_else_wants_something_else(cli: Cli, api: Api, alice: Person) -> None:
    workspace = await alice.workspace("demo")
    async with cli.running("start", "demo", "--wait", "--json") as process:
        await wanted(api, workspace, "RUNNING")
        await alice("PATCH", f"/api/v1/workspaces/{workspace}", {"desired_state": "ARCHIVED"})
        result = await ended(process)
    assert (result.code, result.error["code"]) == (4, "overtaken")


async def test_the_time_is_over_and_the_operation_goes_on(cli: Cli, api: Api, alice: Person) -> None:
    workspace = await alice.workspace("demo")
    result = await cli("start", "demo", "--wait", "--timeout", "0.5s")
    assert (result.code, "goes on" in result.err) == (9, True)
    assert (await alice("GET", f"/api/v1/workspaces/{workspace}")).json["desired_state"] == "RUNNING"


@pytest.mark.parametrize("count", [1, 2])
async def test_ctrl_c_leaves_the_operation_running(cli: Cli, api: Api, alice: Person, count: int) -> None:
    """Also when it is pressed twice: then it may be the shell that says 130, of a process that the signal ended."""
    workspace = await alice.workspace("demo")
    await api.row(workspace, phase="STANDBY")
    async with cli.running("start", "demo", "--wait") as process:
        await wanted(api, workspace, "RUNNING")
        await api.busy(workspace, "STARTING")
        await told(process, "demo: STARTING")
        for _ in range(count):
            # By hand: when it has ended between the two, its `send_signal` would take the exit code away from it.
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGINT)
        result = await ended(process)
    assert "Traceback" not in result.err
    assert result.code in {130, -signal.SIGINT}
    if count == 1:
        assert result.code == 130
        assert "STARTING is under way; it goes on towards RUNNING" in result.err
    assert (await alice("GET", f"/api/v1/workspaces/{workspace}")).json["operation"] == "STARTING"


async def test_a_server_that_restarts_is_waited_for(nobody: Cli, api: Api, alice: Person) -> None:
    """Its connections break, for some seconds nobody answers, and meanwhile it comes true."""
    workspace = await alice.workspace("demo")
    async with FaultProxy(api.url) as proxy:
        await nobody.login(proxy.url, "alice")
        async with nobody.running("start", "demo", "--wait") as process:
            await wanted(api, workspace, "RUNNING")
            await api.busy(workspace, "STARTING")
            await told(process, "demo: STARTING")
            await proxy.refuse()
            await api.row(workspace, phase="RUNNING", **ENDED)
            await told(process, "demo: codehub does not answer, trying again")
            await asyncio.sleep(3)
            assert process.returncode is None
            await proxy.heal()
            assert (await ended(process)).code == 0


async def test_at_a_terminal_it_says_what_is_wrong(nobody: Cli, api: Api, alice: Person) -> None:
    """Why the last attempt failed, as much as fits into its line; that nobody answers; and neither once it is over."""
    workspace = await alice.workspace("demo")
    async with FaultProxy(api.url) as proxy:
        await nobody.login(proxy.url, "alice")
        with Terminal(nobody, "start", "demo", "--wait", columns=80) as terminal:
            await wanted(api, workspace, "RUNNING")
            await api.busy(workspace, "STARTING")
            await api.deps.database.execute(
                "UPDATE operations SET error_message = $1", "Image gone:1 can't be pulled:\n" + "no such tag " * 20
            )
            await api.row(workspace, error_count=2)
            await asyncio.to_thread(terminal.until, "Image gone:1 can't be pulled: no")
            assert max(map(len, terminal.screen.splitlines())) <= 80
            await proxy.refuse()
            await asyncio.to_thread(terminal.until, "codehub does not answer, trying again")
            await api.row(workspace, phase="RUNNING", error_count=0, **ENDED)
            await proxy.heal()
            assert await asyncio.to_thread(terminal.end) == 0
    over = [line for line in terminal.screen.splitlines() if line.startswith("✓ STARTING")]
    assert over
    assert not any("pulled" in line or "answer" in line for line in over), over


async def test_without_live_events_it_looks(nobody: Cli, database_url: str) -> None:
    """A server without Redis has none."""
    async with serving(database_url) as api:
        alice = await api.person("alice")
        await nobody.login(api.url, "alice")
        workspace = await alice.workspace("demo")
        async with nobody.running("start", "demo", "--wait") as process:
            await wanted(api, workspace, "RUNNING")
            await api.busy(workspace, "STARTING")
            await told(process, "demo: STARTING")
            await api.row(workspace, phase="RUNNING", **ENDED)
            assert (await ended(process)).code == 0


async def test_events_that_get_lost_cost_time_only(nobody: Cli, database_url: str, bus: EventBus) -> None:
    """Nobody publishes: there is a stream, and it tells nothing."""
    async with serving(database_url, bus=bus) as api:
        alice = await api.person("alice")
        await nobody.login(api.url, "alice")
        workspace = await alice.workspace("demo")
        async with nobody.running("start", "demo", "--wait") as process:
            await wanted(api, workspace, "RUNNING")
            await asyncio.sleep(1)
            await api.row(workspace, phase="RUNNING")
            assert (await ended(process)).code == 0
