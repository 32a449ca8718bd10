"""Everything that Temporal has, as text: what anybody sees who may look there."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

from temporalio.client import Client


async def stored_by_temporal(client: Client) -> AsyncIterator[str]:
    """Of every workflow of the namespace."""
    async for execution in client.list_workflows():
        yield f"{execution.workflow_type} {dict(execution.search_attributes)}"
        yield await stored_of(client, execution.id, execution.run_id)


async def stored_of(client: Client, workflow: str, run: str | None = None) -> str:
    """Search attributes, memo, what is pending, and each event, payloads included."""
    handle = client.get_workflow_handle(workflow, run_id=run)
    described = (await handle.describe()).raw_description
    history = await handle.fetch_history()
    return "\n".join(text for message in (described, *history.events) for text in _texts(message))


def _texts(message: Any) -> Iterator[str]:
    yield str(message)
    for payload in _payloads(message):
        yield payload.decode(errors="replace")


def _payloads(message: Any) -> Iterator[bytes]:
    """The data of every payload in it, however deep: in the message's own text it is escaped."""
    if message.DESCRIPTOR.name == "Payload":
        yield message.data
    for _, value in message.ListFields():
        entries = value.values() if hasattr(value, "values") else value if hasattr(value, "append") else [value]
        for entry in entries:
            if hasattr(entry, "DESCRIPTOR"):
                yield from _payloads(entry)
