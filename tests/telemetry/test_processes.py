"""What real worker and API processes show of a workspace's life: metrics, one trace, logs that belong together, and
histories that nobody without the key can read."""

import base64
import json
import os
import re
import socket
import time
from typing import Any

import pytest
from temporalio.client import Client

from domain.model import DesiredState, Phase, Workspace, WorkspaceId
from domain.naming import workflow_id
from tests.docs.test_deploy import expressions, metrics_in
from tests.harness.stored import stored_of
from tests.ports import free_port
from tests.processes.conftest import Deploy
from tests.processes.deployment import AT_REST, Deployment
from tests.processes.person import WORKSPACES, Person
from tests.processes.process import CodehubProcess, until
from tests.telemetry.collector import Collected, collecting
from tests.telemetry.exposed import TOKEN, samples, scraped
from workflows.codec import data_converter

pytestmark = pytest.mark.docker

NAME = "a-name-that-should-not-be-read"
_START, _WAKE = "SignalWithStartWorkflowExecution", "SignalWorkflowExecution"
NO_IMAGE = "127.0.0.1:9/nobody/has:this"


@pytest.mark.timeout(900)
async def test_a_life_in_metrics_traces_logs_and_ciphers(deploy: Deploy, temporal_client: Client) -> None:
    """Created, drifted, stopped, archived, restored, expired and deleted, and another one that fails: told by every
    means that an operator has; and by none to others."""
    key = os.urandom(32)
    port, other = free_port(), free_port()
    with collecting() as collected:
        deployment = await deploy(
            METRICS_TOKEN=TOKEN,
            OTEL_EXPORTER_OTLP_ENDPOINT=collected.url,
            OTEL_BSP_SCHEDULE_DELAY="100",
            TEMPORAL_PAYLOAD_KEYS=base64.b64encode(key).decode(),
            TTL_INTERVAL="1",
            GC_INTERVAL="1",
            GC_DELAY="0",
            # Nobody is put to sleep before the last report of who was active has had its time.
            ACTIVITY_FLUSH_INTERVAL="1",
            # There is no registry to wait for.
            RECONCILER_PATIENCE="1",
        )
        worker = await deployment.worker(METRICS_PORT=str(port))
        async with deployment.person(METRICS_PORT=str(other)) as person:
            async with person.client.get(f"{person.url}/api/v1/events") as live:
                await live.content.readline()
                workspace, broken = await _lives(deployment, person, temporal_client)
                await _metrics_of_the_api(person, f"http://127.0.0.1:{other}", workspace)
            row = await deployment.row(broken)
            await _metrics_of_the_worker(f"http://127.0.0.1:{port}/metrics", workspace, row)
            await _leaderships(f"http://127.0.0.1:{port}/metrics", worker)
            await _leadership(f"http://127.0.0.1:{port}", person.url)
            async with person.client.get(f"{person.url}/metrics") as answer:
                assert answer.status == 200, "an admin may look"
            await _one_trace(collected, workspace)
            await _ciphered(temporal_client, workspace, key)
            await _failures_ciphered(temporal_client, broken)
            _logs(deployment, {workspace, broken})
        assert worker.alive


async def _lives(deployment: Deployment, person: Person, client: Client) -> tuple[WorkspaceId, WorkspaceId]:
    """All that is counted happens once at least."""
    workspace = await person.create(NAME)
    broken = await person.create("broken", image=NO_IMAGE)
    await deployment.until_phase(workspace, Phase.RUNNING)
    await deployment.runtime.stop(workspace)
    await until(lambda: _started(deployment, workspace, 2), AT_REST, "nobody noticed that it was gone")
    for desired in (DesiredState.STANDBY, DesiredState.ARCHIVED, DesiredState.RUNNING):
        # What is under way already takes a new desired_state along: then it is done in the trace of what went before.
        await _at_rest(client, workspace)
        await person.want(workspace, desired)
        await deployment.until_phase(workspace, Phase(desired))
    archive = (await deployment.row(workspace)).archive_key
    await person.ask("PATCH", f"{WORKSPACES}/{workspace}", {"standby_ttl_seconds": 1})
    await deployment.until_phase(workspace, Phase.STANDBY)
    await person.delete(workspace)
    await deployment.until_phase(workspace, Phase.DELETED)
    await deployment.until_phase(broken, Phase.ERROR)

    async def is_collected() -> bool:
        assert deployment.archives
        return archive not in {found.key async for found in deployment.archives.list_objects()}

    await until(is_collected, AT_REST, "GC did not collect the archive of the one that was deleted")
    return workspace, broken


async def _at_rest(client: Client, workspace: WorkspaceId, seconds: float = 2) -> None:
    """Its workflow has had nothing to do for so long: no wake of the observer or the listener is still on its way."""
    handle = client.get_workflow_handle(workflow_id(workspace))
    length, since = 0, time.monotonic()

    async def has_been_still() -> bool:
        nonlocal length, since
        found = (await handle.describe()).history_length
        if found != length:
            length, since = found, time.monotonic()
        return time.monotonic() - since > seconds

    await until(has_been_still, AT_REST, "its workflow finds no rest")


async def _started(deployment: Deployment, workspace: WorkspaceId, times: int) -> bool:
    found = await deployment.database.fetchval(
        "SELECT count(*) FROM operations WHERE workspace_id = $1 AND operation = 'STARTING' AND outcome = 'SUCCEEDED'",
        workspace,
    )
    return bool(found == times)


async def _metrics_of_the_worker(url: str, workspace: WorkspaceId, broken: Workspace) -> None:
    assert (await scraped(url, None))[0] == 401
    assert (await scraped(url, "another token, as long"))[0] == 401
    assert (await scraped(url.replace("/metrics", "/health/live"), None))[0] == 200
    status, text = await scraped(url)
    assert status == 200
    shown = samples(text)
    assert shown["codehub_workspaces"][("ERROR",)] == 1
    assert shown["codehub_workspaces"][("RUNNING",)] == 0
    assert broken.error_reason
    assert shown["codehub_workspaces_in_error"][(broken.error_reason,)] == 1
    assert shown["codehub_nodes"][("serving",)] == 1
    assert shown["codehub_leader"][("coordinator",)] == 1
    for operation, times in {"PROVISIONING": 2, "STARTING": 3, "STOPPING": 2, "ARCHIVING": 1, "RESTORING": 1}.items():
        assert shown["codehub_operation_seconds_count"][(operation, "succeeded")] == times, operation
    assert shown["codehub_operation_seconds_count"][("STARTING", "failed")] == 1
    assert shown["codehub_attempt_failures_total"][("STARTING", broken.error_reason)] == broken.error_count > 0
    for operation in ("ARCHIVING", "RESTORING"):
        assert shown["codehub_transfer_bytes_total"][(operation,)] > 0
        assert shown["codehub_transfer_seconds_count"][(operation,)] == 1
    assert shown["codehub_phase_seconds_count"][("RUNNING",)] == 3
    assert shown["codehub_wake_seconds_count"][()] >= 5
    assert shown["codehub_reconcile_seconds_count"][()] >= 3
    assert sum(shown["codehub_observer_woken_total"].values()) >= 1, "drift"
    assert shown["codehub_observer_sweep_seconds_count"][()] >= 1
    assert shown["codehub_ttl_expiries_total"][("STANDBY",)] == 1
    assert shown["codehub_ttl_tick_timestamp_seconds"][()] > time.time() - AT_REST
    assert shown["codehub_gc_deleted_total"][()] >= 2, "the archive and its .meta"
    assert shown["codehub_gc_deleted_bytes_total"][()] > 0
    assert shown["codehub_gc_finished_timestamp_seconds"][()] > time.time() - AT_REST
    # The SDK's own, on the same page.
    asked = set().union(*(metrics_in(expression) for expression in expressions()))
    missing = {name for name in asked if name.startswith("temporal_")} - set(shown)
    assert missing == set(), f"the board or the alerts ask for what there is not; there is {_temporal(shown)}"
    assert workspace not in text, "labels of high cardinality"


async def _leaderships(url: str, worker: CodehubProcess) -> None:
    """As often as it said so: one that stood still for seconds has lost the lock meanwhile, and has taken it again."""

    def said() -> int:
        return sum((line["event"], line.get("lock")) == ("leading", "coordinator") for line in worker.events)

    before = said()
    shown = samples((await scraped(url))[1])
    assert 1 <= before <= shown["codehub_leaderships_total"][("coordinator",)] <= said()


def _temporal(shown: dict[str, Any]) -> list[str]:
    return sorted(name for name in shown if name.startswith("temporal_"))


async def _leadership(worker: str, api: str) -> None:
    """SPEC 10: the worker says that it leads, and the API who does: the same one, for as long."""
    own = json.loads((await scraped(f"{worker}/health/coordinator", None))[1])
    told = json.loads((await scraped(f"{api}/health/coordinator", None))[1])
    assert (own["is_leader"], own["node_id"]) == (True, socket.gethostname())
    assert (told["is_leader"], told["node_id"], told["leader"]["alive"]) == (True, own["node_id"], True)
    assert abs(told["uptime_seconds"] - own["uptime_seconds"]) < 30


async def _metrics_of_the_api(person: Person, own: str, workspace: WorkspaceId) -> None:
    """While a client listens for live events."""
    url = f"{person.url}/metrics"
    await person.ask("POST", "/api/v1/login", {"username": "admin", "password": "a wrong one"})
    assert (await scraped(url, None))[0] == 401
    status, text = await scraped(url)
    assert status == 200
    shown = samples(text)
    assert shown["codehub_http_request_seconds_count"][("POST", "/api/v1/workspaces", "2xx")] == 2
    assert shown["codehub_http_request_seconds_count"][("PATCH", "/api/v1/workspaces/{workspace_id}", "2xx")] == 4
    assert shown["codehub_login_failures_total"][()] == 1
    assert shown["codehub_sse_clients"][()] == 1
    assert "codehub_workspaces" not in shown, "the fleet is told once, by the leader"
    asked = shown["temporal_request_total"]
    starts, wakes = (sum(asked[labels] for labels in asked if what in labels) for what in (_START, _WAKE))
    assert (starts >= 2, wakes >= 4) == (True, True), "two creates; three desired states and a deletion"
    assert workspace not in text
    assert (await scraped(f"{own}/metrics"))[0] == 200


async def _one_trace(collected: Collected, workspace: WorkspaceId) -> None:
    """From the request through the workflow to the engine, each span the child of another one of the same trace."""
    wanted = {
        "POST /api/v1/workspaces",
        "SignalWithStartWorkflow:WorkspaceWorkflow",
        "RunWorkflow:WorkspaceWorkflow",
        "RunActivity:PROVISIONING",
        "RunActivity:STARTING",
    }

    found: list[bytes] = []

    async def has_arrived() -> bool:
        traces = collected.traces_with("POST /api/v1/workspaces")
        found[:] = [one for one in traces if wanted <= {span.name for span in collected.of(one)}]
        # A span is told when it ends, and its parent's end comes later.
        return bool(found) and not _orphans(found[0]) and bool(collected.traces_with("RunActivity:DELETING"))

    def _orphans(trace: bytes) -> list[str]:
        known = {span.id for span in collected.of(trace)}
        return [span.name for span in collected.of(trace) if span.parent and span.parent not in known]

    await until(has_arrived, AT_REST, "the trace of the create is not whole")
    spans = collected.of(found[0])
    assert {span.service for span in spans} == {"codehub-api", "codehub-worker"}
    assert any(span.name.startswith("postgresql ") for span in spans if span.service == "codehub-worker")
    assert any(span.name.startswith("docker ") for span in spans)
    # What a later request caused is that one's trace, though the workflow is the same; and it goes on to the store.
    patches = collected.traces_with("PATCH /api/v1/workspaces/{workspace_id}")
    assert len(patches & collected.traces_with("RunActivity:STOPPING")) == 1
    assert len(collected.traces_with("wake what expired") & collected.traces_with("RunActivity:STOPPING")) == 1
    (archiving,) = collected.traces_with("RunActivity:ARCHIVING")
    assert archiving in patches
    called = {span.name for span in collected.of(archiving) if span.name.startswith("s3 ")}
    assert len(called) > 1, called
    assert not any("password" in str(span.attributes).lower().replace("password_hash", "") for span in spans)


async def _ciphered(client: Client, workspace: WorkspaceId, key: bytes) -> None:
    history = await client.get_workflow_handle(workflow_id(workspace)).fetch_history()
    assert NAME not in history.to_json()
    assert base64.b64encode(NAME.encode()).decode()[:20] not in history.to_json()
    started = history.events[0].workflow_execution_started_event_attributes
    assert started.input.payloads[0].metadata["encoding"] == b"binary/encrypted"
    plain = await data_converter([os.urandom(32), key]).decode(started.input.payloads)
    assert workspace in str(plain)


async def _failures_ciphered(client: Client, broken: WorkspaceId) -> None:
    """What a failure says and where in the code it was, too; by its type it is known what Temporal is to do."""
    told = await stored_of(client, workflow_id(broken))
    assert "ImagePullFailed" in told or "Unreachable" in told
    assert "Encoded failure" in told
    assert NO_IMAGE not in told
    assert "operate.py" not in told


def _logs(deployment: Deployment, workspaces: set[WorkspaceId]) -> None:
    """Every line of an operation names the workspace and the operation; every request its id."""
    lines = [line for process in deployment.processes for line in process.events]
    requests = [line for line in lines if line["event"] == "request"]
    assert requests
    assert all(re.fullmatch(r"[0-9a-f]{32}", line["request_id"]) for line in requests)
    reconciled = [line for line in lines if line["event"] == "reconciled"]
    assert {line["workspace"] for line in reconciled} == workspaces
    assert all(line["operation_id"] for line in reconciled if line["operation"] != "NONE")
    traced = {line["trace_id"] for line in requests} & {line.get("trace_id") for line in reconciled}
    assert traced, "a request and what the worker did for it are found by one trace id"
