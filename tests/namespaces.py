"""Namespaces of the tests' own, in the Temporal server that a run shares."""

import contextlib
import uuid
from collections.abc import AsyncIterator, Iterator

from google.protobuf.duration_pb2 import Duration
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from workflows.messages import SEARCH_ATTRIBUTES


@contextlib.asynccontextmanager
async def own_namespace(temporal_address: str) -> AsyncIterator[Client]:
    """With the search attributes. What still runs in it is ended after the test."""
    client = await new_namespace(temporal_address)
    await add_search_attributes(client)
    yield client
    # The listings are late: they name what the test itself has deleted, and what has ended by itself.
    async for schedule in await client.list_schedules():
        with unless(RPCStatusCode.NOT_FOUND):
            await client.get_schedule_handle(schedule.id).delete()
    async for execution in client.list_workflows("ExecutionStatus = 'Running'"):
        with unless(RPCStatusCode.NOT_FOUND):
            await client.get_workflow_handle(execution.id).terminate("the test is over")


async def new_namespace(temporal_address: str) -> Client:
    """As it is when it has just been made."""
    namespace = f"test-{uuid.uuid4().hex[:12]}"
    client = await Client.connect(temporal_address, namespace=namespace)
    with unless(RPCStatusCode.ALREADY_EXISTS):
        await client.workflow_service.register_namespace(
            RegisterNamespaceRequest(
                namespace=namespace, workflow_execution_retention_period=Duration(seconds=24 * 3600)
            ),
            # The server takes a few of these at once, then ten a second.
            retry=True,
        )
    return client


@contextlib.contextmanager
def unless(done: RPCStatusCode) -> Iterator[None]:
    """For a call to Temporal that can be made once only. The client makes it again when the first answer was late or
    lost; what it is told then, `done`, means that the first one did it.
    """
    try:
        yield
    except RPCError as error:
        if error.status is not done:
            raise


async def add_search_attributes(client: Client) -> None:
    kinds = {name: f"INDEXED_VALUE_TYPE_{kind.upper()}" for name, kind in SEARCH_ATTRIBUTES.items()}
    await client.operator_service.add_search_attributes(
        AddSearchAttributesRequest(
            namespace=client.namespace,
            search_attributes={name: IndexedValueType.Value(kind) for name, kind in kinds.items()},
        )
    )
