"""Who is calling, kept for a moment.

`forget` is called after every request that can end a session or a token, and by the events that tell of those of other
processes. Five seconds are for the case that nobody tells.
"""

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import NamedTuple

from starlette.requests import HTTPConnection

from adapters.postgres.sessions import Identity
from domain.model import WorkspaceId
from starter.api.authentication import TOKEN_PREFIX, Authenticator, cookie_name
from starter.proxy.cookies import ENTERED_COOKIES, parts_of
from starter.proxy.head import RequestHead

SECONDS = 5.0
_MOST = 10_000
_OUR_TOKEN = TOKEN_PREFIX.encode()


class Proof(NamedTuple):
    """What a request shows to be let in, and nothing else of it: the workspace's own cookies may change each time.
    `host`: on which workspace's own host; there the cookie is another one.
    """

    scheme: str
    cookie: bytes
    token: bytes
    host: WorkspaceId | None = None

    @classmethod
    def of(cls, head: RequestHead, scheme: str, host: WorkspaceId | None = None) -> "Proof":
        """An Authorization that is not ours is the workspace's own, and says nothing here."""
        authorization = head.values.get(b"authorization", b"")
        if _OUR_TOKEN in authorization:
            return cls(scheme, b"", authorization, host)
        cookie = head.values.get(b"cookie", b"")
        if host is not None:
            return cls(scheme, b";".join(parts_of(cookie, ENTERED_COOKIES)), b"", host)
        # Of several, the last one counts.
        return cls(scheme, b"".join(parts_of(cookie, {cookie_name(scheme)})[-1:]), b"", host)


# By the cookie of a workspace's own host.
IdentifyAtHost = Callable[[bytes, WorkspaceId], Awaitable[Identity | None]]


class Identities:
    def __init__(self, authenticator: Authenticator, at_host: IdentifyAtHost | None = None) -> None:
        self._authenticator = authenticator
        self._at_host = at_host
        self._known: dict[Proof, tuple[Identity, float]] = {}
        self._generation = 0

    def cached(self, proof: Proof) -> Identity | None:
        found = self._known.get(proof)
        return found[0] if found is not None and found[1] > time.monotonic() else None

    async def find(self, proof: Proof) -> Identity | None:
        """Raises DatabaseUnavailable."""
        return self.cached(proof) or await self.check(proof)

    async def check(self, proof: Proof) -> Identity | None:
        """Asks, whatever is known."""
        if not proof.cookie and not proof.token:
            return None
        asked, generation = time.monotonic(), self._generation
        identity = await self._identify(proof)
        self._known.pop(proof, None)
        # An answer from before a session ended must not stay.
        if identity is not None and generation == self._generation:
            self._keep(proof, identity, asked)
        return identity

    def forget(self) -> None:
        self._known.clear()
        self._generation += 1

    async def _identify(self, proof: Proof) -> Identity | None:
        if proof.host is not None and self._at_host is not None and not proof.token:
            return await self._at_host(proof.cookie, proof.host)
        return await self._authenticator.identify(_connection(proof))

    def _keep(self, proof: Proof, identity: Identity, asked: float) -> None:
        left = SECONDS
        if identity.expires_at is not None:
            left = min(left, (identity.expires_at - datetime.now(UTC)).total_seconds())
        if len(self._known) >= _MOST:
            # The oldest, which ends first: nobody can push out all the others at once.
            del self._known[next(iter(self._known))]
        self._known[proof] = (identity, asked + left)


def _connection(proof: Proof) -> HTTPConnection:
    headers = [(b"authorization", proof.token)] if proof.token else [(b"cookie", proof.cookie)]
    return HTTPConnection({"type": "http", "scheme": proof.scheme, "headers": headers})
