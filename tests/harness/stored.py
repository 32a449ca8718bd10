"""Everything that Temporal has, as text: what anybody sees who may look there."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.converter import PayloadCodec


async def stored_by_temporal(client: Client, codec: PayloadCodec | None = None) -> AsyncIterator[str]:
    """Of every workflow of the namespace."""
    async for execution in client.list_workflows():
        yield f"{execution.workflow_type} {dict(execution.search_attributes)}"
        yield await stored_of(client, execution.id, execution.run_id, codec)


async def stored_of(client: Client, workflow: str, run: str | None = None, codec: PayloadCodec | None = None) -> str:
    """Search attributes, memo, what is pending, and each event, payloads included: with `codec` also as they were
    before it encoded them."""
    handle = client.get_workflow_handle(workflow, run_id=run)
    described = (await handle.describe()).raw_description
    history = await handle.fetch_history()
    texts: list[str] = []
    for message in (described, *history.events):
        payloads = list(_payloads(message))
        plain = await codec.decode(payloads) if codec is not None else []
        # In the text of the message itself the data is escaped.
        texts += [str(message), *(one.data.decode(errors="replace") for one in (*payloads, *plain))]
    return "\n".join(texts)


def _payloads(message: Any) -> Iterator[Payload]:
    """Every one in it, however deep."""
    if isinstance(message, Payload):
        yield message
    for _, value in message.ListFields():
        entries = value.values() if hasattr(value, "values") else value if hasattr(value, "append") else [value]
        for entry in entries:
            if hasattr(entry, "DESCRIPTOR"):
                yield from _payloads(entry)
