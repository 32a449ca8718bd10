"""`codehub events`."""

import asyncio
import json
import signal
from typing import Any

from rich.cells import cell_len

from tests.api.world import Api, Person
from tests.cli.console import Cli, Terminal
from tests.faults.proxy import FaultProxy


async def lines(process: asyncio.subprocess.Process) -> str:
    assert process.stdout
    async with asyncio.timeout(30):
        return (await process.stdout.readline()).decode()


async def test_json_is_one_event_per_line(cli: Cli, api: Api, alice: Person) -> None:
    """The current state first, then changes; each as the API tells it."""
    first = await alice.workspace("first")
    async with cli.running("events", "--json") as process:

        async def event() -> Any:
            return json.loads(await lines(process))

        whole = (await alice("GET", f"/api/v1/workspaces/{first}")).json
        assert await event() == {"event": "workspace_updated", "data": whole}
        second = await alice.workspace("second")
        told = await event()
        assert (told["event"], told["data"]["id"]) == ("workspace_updated", second)
        await alice("DELETE", f"/api/v1/workspaces/{second}")
        await api.row(second, phase="DELETED")
        while told["event"] != "workspace_deleted":
            told = await event()
        assert told == {"event": "workspace_deleted", "data": {"id": second}}
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(20):
            assert (await process.communicate())[1] == b""
        assert process.returncode == 130


async def test_it_comes_back_by_itself(nobody: Cli, api: Api, alice: Person) -> None:
    """After an interruption: what was deleted meanwhile is told, and the current state."""
    gone, kept = await alice.workspace("gone"), await alice.workspace("kept")
    async with FaultProxy(api.url) as proxy:
        await nobody.login(proxy.url, "alice")
        async with nobody.running("events") as process:
            assert {(await lines(process)).split()[1] for _ in range(2)} == {"gone", "kept"}
            await proxy.refuse()
            await alice("DELETE", f"/api/v1/workspaces/{gone}")
            await api.row(gone, phase="DELETED")
            await alice("PATCH", f"/api/v1/workspaces/{kept}", {"desired_state": "ARCHIVED"})
            assert process.stderr
            assert "Trying again" in (await process.stderr.readline()).decode()
            await proxy.heal()
            assert {(await lines(process)).split()[1] for _ in range(2)} == {"gone", "kept"}
            assert "Connected again" in (await process.stderr.readline()).decode()


async def test_columns_stay_columns(cli: Cli, api: Api, alice: Person) -> None:
    """At a terminal, whatever the names: long ones are cut off, and wide signs take two places."""
    for name, desired in (("tiny", "STANDBY"), ("long-" * 15, "RUNNING"), ("日本語の名前", "ARCHIVED")):
        await alice.workspace(name, desired_state=desired)

    def look() -> list[str]:
        with Terminal(cli, "events") as terminal:
            for desired in ("STANDBY", "RUNNING", "ARCHIVED"):
                terminal.until(f"PENDING → {desired}")
            return terminal.screen.splitlines()

    shown = [line.partition("PENDING")[0] for line in await asyncio.to_thread(look)]
    assert {cell_len(before) for before in shown if before} == {32}, shown


async def test_people_see_what_changed(cli: Cli, api: Api, alice: Person) -> None:
    """Only of the workspace that they named."""
    demo, other = await alice.workspace("demo"), await alice.workspace("other")
    async with cli.running("events", "demo") as process:
        assert (await lines(process)).split()[1:] == ["demo", "PENDING", "→", "STANDBY"]
        await alice("PATCH", f"/api/v1/workspaces/{other}", {"memo": "not told"})
        await alice("PATCH", f"/api/v1/workspaces/{demo}", {"memo": "told"})
        assert (await lines(process)).split()[1:] == ["demo", "changed:", "memo"]
        await api.busy(demo, "PROVISIONING")
        assert (await lines(process)).split()[1:] == ["demo", "PENDING", "›", "PROVISIONING"]
