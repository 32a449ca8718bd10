"""A namespace is made ready before workflows run in it."""

import uuid

from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client

from workflows.messages import SEARCH_ATTRIBUTES
from workflows.namespace import ensure_search_attributes


async def test_missing_search_attributes_are_added_once(temporal_address: str) -> None:
    namespace = f"test-{uuid.uuid4().hex[:12]}"
    client = await Client.connect(temporal_address, namespace=namespace)
    await client.workflow_service.register_namespace(
        RegisterNamespaceRequest(namespace=namespace, workflow_execution_retention_period=Duration(seconds=86400)),
        retry=True,
    )
    assert await ensure_search_attributes(client) == sorted(SEARCH_ATTRIBUTES)
    assert await ensure_search_attributes(client) == []
