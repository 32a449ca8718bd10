"""Temporal: reachable, the namespace, the search attributes, who polls the queues, the Schedules, its clock."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    DescribeTaskQueueRequest,
    DescribeTaskQueueResponse,
    GetSystemInfoRequest,
    PollWorkflowTaskQueueRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from settings import Settings
from starter.commands.checks.clock import compared
from starter.commands.checks.finding import CheckFailed, Finding, Findings, bad, latency, needed, ok, warning
from starter.commands.checks.nodes import registered
from starter.commands.words import span
from starter.temporal import temporal_address
from workflows.client import connect
from workflows.messages import CHORES_QUEUE, SEARCH_ATTRIBUTES, TASK_QUEUE, operations_queue

SCHEDULES = ("codehub-gc", "codehub-ttl")
_RPC = timedelta(seconds=5)


async def check_temporal(settings: Settings) -> Findings:
    address = needed(settings.temporal_address, "TEMPORAL_ADDRESS")
    try:
        async with asyncio.timeout(5):
            client = await connect(temporal_address(settings))
        info = await client.workflow_service.get_system_info(GetSystemInfoRequest(), timeout=_RPC)
        took = await latency(lambda: client.workflow_service.get_system_info(GetSystemInfoRequest(), timeout=_RPC))
    except (RPCError, RuntimeError, TimeoutError) as error:
        told = re.search(r'message: "([^"]+)"', str(error))
        reason = told[1] if told else str(error) or "no answer within 5 s"
        advice = "Start it, or correct TEMPORAL_ADDRESS (TEMPORAL_TLS, TEMPORAL_API_KEY)."
        raise CheckFailed(f"{address}: {reason}", advice) from error
    yield ok(f"answers at {address}", took)
    yield ok(f"version {info.server_version}")
    yield await _namespace(client)
    yield await _search_attributes(client)
    yield await _pollers(client, [entry.node.name for entry in await registered(settings)])
    yield await _schedules(client)
    if finding := await _clock(client):
        yield finding


async def _namespace(client: Client) -> Finding:
    try:
        found = await client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace=client.namespace), timeout=_RPC
        )
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            advice = f"Create it (temporal operator namespace create -n {client.namespace}), or set TEMPORAL_NAMESPACE."
            raise CheckFailed(f"there is no namespace {client.namespace}", advice) from error
        return warning(f"the namespace {client.namespace} can't be looked at: {error}", "Let the key describe it.")
    kept = found.config.workflow_execution_retention_ttl.ToTimedelta()
    return ok(f"namespace {client.namespace}, keeps ended histories for {span(kept)}")


async def _search_attributes(client: Client) -> Finding:
    try:
        found = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=client.namespace), timeout=_RPC
        )
    except RPCError as error:
        return warning(f"the search attributes can't be looked at: {error}", f"Make sure that there are: {_named()}.")
    missing = [name for name in SEARCH_ATTRIBUTES if name not in found.custom_attributes]
    if missing:
        names = " ".join(f"--name {name} --type {SEARCH_ATTRIBUTES[name]}" for name in missing)
        by_hand = f"temporal operator search-attribute create -n {client.namespace} {names}"
        return bad(
            f"search attributes are missing: {', '.join(missing)}",
            f"A worker registers them when it starts, if it may. By hand: {by_hand}",
        )
    return ok(f"search attributes are registered ({_named()})")


async def _pollers(client: Client, nodes: list[str]) -> Finding:
    """Workflows and chores are any worker's; operations are those of a node's own workers: see starter/polling.py."""
    wanted = [
        ("workflows", TASK_QUEUE, TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, "codehub worker"),
        ("chores", CHORES_QUEUE, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY, "codehub worker"),
        *(
            (
                "operations",
                operations_queue(node),
                TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
                f"codehub worker --node {node}",
            )
            for node in nodes
        ),
    ]
    described = await asyncio.gather(*(_described(client, queue, kind) for _, queue, kind, _ in wanted))
    idle = [told for told, found in zip(wanted, described, strict=True) if not found.pollers]
    if idle:
        missing = ", ".join(f"{what} from the queue {queue}" for what, queue, _, _ in idle)
        return bad(f"no worker takes {missing}", f"Start one: {idle[0][3]}")
    if not nodes:
        return bad("no node is registered: no worker takes operations", "Start one: codehub worker")
    return ok(f"workers poll the queues {', '.join(dict.fromkeys(queue for _, queue, _, _ in wanted))}")


async def _schedules(client: Client) -> Finding:
    missing, paused = [], []
    for schedule_id in SCHEDULES:
        try:
            found = await client.get_schedule_handle(schedule_id).describe(rpc_timeout=_RPC)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            missing.append(schedule_id)
        else:
            paused += [schedule_id] if found.schedule.state.paused else []
    if missing:
        return bad(f"Schedules are missing: {', '.join(missing)}", "A worker makes them when it starts.")
    if paused:
        advice = f"Nothing goes to sleep, or is collected: temporal schedule toggle --unpause -s {paused[0]}"
        return warning(f"Schedules are paused: {', '.join(paused)}", advice)
    return ok(f"Schedules {' and '.join(SCHEDULES)} are on")


async def _clock(client: Client) -> Finding | None:
    """It does not tell its time, but when a queue was polled last: so poll one that nobody else has."""
    queue = f"codehub-doctor-{uuid4().hex}"
    request = PollWorkflowTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=queue), identity="codehub doctor"
    )
    asked = datetime.now(UTC)
    polling = asyncio.ensure_future(client.workflow_service.poll_workflow_task_queue(request, timeout=_RPC))
    try:
        while not polling.done():
            pollers = (await _described(client, queue, TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW)).pollers
            if pollers:
                theirs, told = pollers[0].last_access_time.ToDatetime(UTC), datetime.now(UTC)
                # It was polled at some moment between the two: how long that took says nothing about its clock.
                return compared(theirs, min(max(theirs, asked), told))
            await asyncio.sleep(0.05)
        return None
    finally:
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)


async def _described(client: Client, queue: str, kind: TaskQueueType.ValueType) -> DescribeTaskQueueResponse:
    return await client.workflow_service.describe_task_queue(
        DescribeTaskQueueRequest(namespace=client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind),
        timeout=_RPC,
    )


def _named() -> str:
    return ", ".join(SEARCH_ATTRIBUTES)
