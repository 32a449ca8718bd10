"""A namespace is made ready before workflows run in it."""

import pytest
from temporalio.client import Client
from temporalio.service import RPCError

from tests.faults.proxy import FaultProxy
from tests.namespaces import new_namespace
from workflows.messages import SEARCH_ATTRIBUTES
from workflows.namespace import ensure_search_attributes


async def test_missing_search_attributes_are_added_once(temporal_address: str) -> None:
    client = await new_namespace(temporal_address)
    assert await ensure_search_attributes(client) == sorted(SEARCH_ATTRIBUTES)
    assert await ensure_search_attributes(client) == []


async def test_a_server_that_has_just_gone_is_no_wrong_namespace(temporal_address: str) -> None:
    """Whoever starts waits for it, as for one that was never there: see `worker`."""
    async with FaultProxy(f"tcp://{temporal_address}") as proxy:
        client = await Client.connect(proxy.url.removeprefix("tcp://"))
        await proxy.refuse()
        with pytest.raises(RPCError):
            await ensure_search_attributes(client)
