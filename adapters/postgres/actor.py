"""On whose behalf this task changes rows: triggers write it into the audit log, in the transaction of the change."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from domain.audit import Actor

_ACTOR: ContextVar[Actor | None] = ContextVar("actor", default=None)

_TELL = "SELECT set_config('codehub.actor', $1, true)"


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


async def begin(connection: Any, lock: int | None = None) -> None:
    """At the beginning of a transaction, in one statement: the actor, and an advisory lock. Both go with its end."""
    actor = _ACTOR.get()
    if actor is None:
        if lock is not None:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", lock)
        return
    told = {
        "kind": actor.kind,
        "name": actor.name,
        "id": actor.id,
        "reason": actor.reason,
        "request_id": actor.request_id,
    }
    words = json.dumps({name: value for name, value in told.items() if value is not None})
    if lock is None:
        await connection.execute(_TELL, words)
    else:
        await connection.execute(f"{_TELL}, pg_advisory_xact_lock($2)", words, lock)
