"""A person who opens the Temporal UI can read it: whose workspace, where it stands, what was done and why."""

import asyncio
from collections.abc import Mapping
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.client import Client

from activities.attempt import Actuator, Attempt
from adapters.memory.runtime import MemoryRuntime
from adapters.runtime import Runtime
from domain.model import DesiredState, Operation, Phase
from domain.naming import workflow_id
from tests.integration.system import system
from tests.resources import resources
from workflows.messages import SEARCH_ATTRIBUTES


async def test_a_workflow_says_what_it_is(temporal_client: Client, database_url: str) -> None:
    """Its memo names workspace and owner, also after a rename; every activity and timer has a summary in words."""
    async with system(temporal_client, database_url, MemoryRuntime(), "image") as running:
        workspace = await running.create(DesiredState.STANDBY)
        await running.until_phase(workspace, Phase.STANDBY)
        handle = temporal_client.get_workflow_handle(workflow_id(workspace))
        described = await handle.describe()
        assert await described.memo() == {"name": workspace, "owner": "alice"}
        assert await described.static_summary() == "A workspace: reality follows its desired state"
        await running.parts.database.execute("UPDATE workspaces SET name = 'renamed' WHERE id = $1", workspace)
        await running.want(workspace, DesiredState.RUNNING)
        await running.until_phase(workspace, Phase.RUNNING)
        assert (await (await handle.describe()).memo())["name"] == "renamed"
        expected = {f"{workspace} of alice", "renamed of alice", "observe, judge, decide, save", "safety timer"}
        await _says(temporal_client, workflow_id(workspace), expected)


async def test_whoever_looks_finds_it(temporal_client: Client, database_url: str) -> None:
    """`Phase = "ERROR"` and the like find workspaces, under ids that are theirs: by each search attribute there is."""
    runtime = MemoryRuntime()
    runtime.missing_images.add("no-such-image")
    async with system(temporal_client, database_url, runtime, "image", actuators=_never_started) as running:
        broken = await running.create(image="no-such-image")
        asleep = await running.create(DesiredState.STANDBY)
        starting = await running.create()
        await running.until_phase(broken, Phase.ERROR)
        await running.until_phase(asleep, Phase.STANDBY)
        await running.until(starting, lambda ws: ws.operation is Operation.STARTING)
        everyone = {broken, asleep, starting}
        expected = {
            "Phase": ("ERROR", {broken}),
            "Operation": ("STARTING", {starting}),
            "DesiredState": ("STANDBY", {asleep}),
            "Owner": (running.user, everyone),
            "Node": ("local", everyone),
        }
        assert set(expected) == set(SEARCH_ATTRIBUTES)
        for name, (value, workspaces) in expected.items():
            await _is_found(temporal_client, f'{name} = "{value}"', {f"ws-{id_}" for id_ in workspaces})


def _never_started(runtime: Runtime) -> Mapping[Operation, Actuator]:
    """Unless its image can't be had."""
    acts = resources(runtime).by_operation()

    async def start(attempt: Attempt) -> None:
        if attempt.workspace.image_ref == "no-such-image":
            await acts[Operation.STARTING](attempt)
        await asyncio.Event().wait()

    return {**acts, Operation.STARTING: start}


async def _is_found(client: Client, query: str, ids: set[str]) -> None:
    found: set[str] = set()
    try:
        async with asyncio.timeout(20):
            while (found := {one.id async for one in client.list_workflows(query)}) != ids:
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"{query} finds {found}, not {ids}") from None


async def _says(client: Client, id_: str, expected: set[str]) -> None:
    """Its row says what was done a moment before the workflow hears of it and goes on."""
    said: set[str] = set()
    try:
        async with asyncio.timeout(20):
            while not expected <= (said := await _summaries(client, id_)):
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"{expected - said} is not among {said}") from None


async def _summaries(client: Client, id_: str) -> set[str]:
    history: Any = await client.get_workflow_handle(id_).fetch_history()
    metadata = [event.user_metadata for event in history.events]
    payloads: list[Payload] = [one.summary for one in metadata if one.HasField("summary")]
    return set(await client.data_converter.decode(payloads, [str] * len(payloads)))
