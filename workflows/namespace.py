"""What a Temporal namespace needs before workflows run in it."""

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from workflows.messages import SEARCH_ATTRIBUTES

_REFUSED = (
    RPCStatusCode.INVALID_ARGUMENT,
    RPCStatusCode.NOT_FOUND,
    RPCStatusCode.PERMISSION_DENIED,
    RPCStatusCode.UNAUTHENTICATED,
    RPCStatusCode.FAILED_PRECONDITION,
    RPCStatusCode.UNIMPLEMENTED,
)
"""What a server says of the namespace or of whoever asks. All else says that it has just gone, or has its hands full:
a connection that is cut is UNAVAILABLE, CANCELLED or UNKNOWN, by the moment in which that happens."""


class NamespaceNotReady(Exception):
    """Workflows would fail in this namespace; the message says what is missing."""


async def ensure_search_attributes(client: Client) -> list[str]:
    """Add those that are missing and return their names: without them every workflow task would fail. Raises RPCError
    where the server is away, and NamespaceNotReady where waiting would not help."""
    try:
        found = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=client.namespace)
        )
        missing = sorted(SEARCH_ATTRIBUTES.keys() - set(found.custom_attributes))
        if missing:
            await client.operator_service.add_search_attributes(
                AddSearchAttributesRequest(
                    namespace=client.namespace,
                    search_attributes={
                        name: IndexedValueType.Value(f"INDEXED_VALUE_TYPE_{SEARCH_ATTRIBUTES[name].upper()}")
                        for name in missing
                    },
                )
            )
    except RPCError as error:
        if error.status not in _REFUSED:
            raise
        if await _are_there(client):
            return []
        names = ", ".join(f"{name} ({kind})" for name, kind in SEARCH_ATTRIBUTES.items())
        raise NamespaceNotReady(
            f"The search attributes of namespace {client.namespace!r} can't be set up ({error.message}); "
            f"add them by hand: {names}"
        ) from error
    return missing


async def _are_there(client: Client) -> bool:
    """For whoever may neither list nor add them, as with a key of Temporal Cloud: a question that names them is only
    answered where they are."""
    try:
        await client.count_workflows(" AND ".join(f"{name} = 'none'" for name in SEARCH_ATTRIBUTES))
    except RPCError:
        return False
    return True
