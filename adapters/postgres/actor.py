"""On whose behalf this task changes rows: triggers write it into the audit log, in the transaction of the change."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from domain.audit import Actor

_ACTOR: ContextVar[Actor | None] = ContextVar("actor", default=None)


@contextmanager
def acting(actor: Actor) -> Iterator[None]:
    token = _ACTOR.set(actor)
    try:
        yield
    finally:
        _ACTOR.reset(token)


def act_as(actor: Actor) -> None:
    """For the rest of this task, such as a request."""
    _ACTOR.set(actor)


async def tell_actor(connection: Any) -> None:
    """At the beginning of a transaction; forgotten at its end."""
    actor = _ACTOR.get()
    if actor is not None:
        told = {
            "kind": actor.kind,
            "name": actor.name,
            "id": actor.id,
            "reason": actor.reason,
            "request_id": actor.request_id,
        }
        await connection.execute(
            "SELECT set_config('codehub.actor', $1, true)",
            json.dumps({name: value for name, value in told.items() if value is not None}),
        )
