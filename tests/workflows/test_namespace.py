"""A namespace is made ready before workflows run in it."""

from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from tests.faults.proxy import FaultProxy
from tests.namespaces import new_namespace
from workflows.messages import SEARCH_ATTRIBUTES
from workflows.namespace import NamespaceNotReady, ensure_search_attributes


async def test_missing_search_attributes_are_added_once(temporal_address: str) -> None:
    client = await new_namespace(temporal_address)
    assert await ensure_search_attributes(client) == sorted(SEARCH_ATTRIBUTES)
    assert await ensure_search_attributes(client) == []


async def test_who_may_not_ask_for_them_goes_on_where_they_are(temporal_address: str) -> None:
    """As with a key of Temporal Cloud that may run workflows and no more: somebody has added them by hand."""

    async def refuse(_: Any) -> None:
        raise RPCError("not for this key", RPCStatusCode.PERMISSION_DENIED, b"")

    there, bare = await new_namespace(temporal_address), await new_namespace(temporal_address)
    await ensure_search_attributes(there)
    for client in (there, bare):
        refusing: Any = SimpleNamespace(
            namespace=client.namespace,
            operator_service=SimpleNamespace(list_search_attributes=refuse),
            count_workflows=client.count_workflows,
        )
        if client is there:
            assert await ensure_search_attributes(refusing) == []
        else:
            with pytest.raises(NamespaceNotReady, match="by hand"):
                await ensure_search_attributes(refusing)


async def test_a_server_that_has_just_gone_is_no_wrong_namespace(temporal_address: str) -> None:
    """Whoever starts waits for it, as for one that was never there: see `worker`."""
    async with FaultProxy(f"tcp://{temporal_address}") as proxy:
        client = await Client.connect(proxy.url.removeprefix("tcp://"))
        await proxy.refuse()
        with pytest.raises(RPCError):
            await ensure_search_attributes(client)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        *((code, RPCError) for code in (RPCStatusCode.UNKNOWN, RPCStatusCode.UNAVAILABLE, RPCStatusCode.INTERNAL)),
        *((code, NamespaceNotReady) for code in (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.NOT_FOUND)),
    ],
)
async def test_only_what_the_server_refuses_is_wrong(status: RPCStatusCode, expected: type[Exception]) -> None:
    """A cut connection is told in one of several ways, by the moment in which it is cut: here each of them."""

    async def fail(_: Any) -> None:
        raise RPCError("transport error", status, b"")

    client: Any = SimpleNamespace(
        namespace="default", operator_service=SimpleNamespace(list_search_attributes=fail), count_workflows=fail
    )
    with pytest.raises(expected):
        await ensure_search_attributes(client)
