import sysconfig
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.testing import WorkflowEnvironment

from workflows.messages import SEARCH_ATTRIBUTES


@pytest.fixture
async def time_skipping() -> AsyncIterator[WorkflowEnvironment]:
    binary = Path(sysconfig.get_path("scripts")) / "temporal-test-server"
    async with await WorkflowEnvironment.start_time_skipping(test_server_existing_path=str(binary)) as environment:
        await environment.client.operator_service.add_search_attributes(
            AddSearchAttributesRequest(
                namespace=environment.client.namespace,
                search_attributes=dict.fromkeys(SEARCH_ATTRIBUTES, IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD),
            )
        )
        yield environment
