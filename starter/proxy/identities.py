"""Who is calling, kept for a moment: at most five seconds after a session ended somewhere else, nothing passes.

In this process it ends at once: `forget` is called after every request that can end a session or a token.
"""

import time
from datetime import UTC, datetime
from typing import NamedTuple

from starlette.requests import HTTPConnection

from adapters.postgres.sessions import Identity
from starter.api.authentication import TOKEN_PREFIX, Authenticator
from starter.proxy.head import RequestHead

SECONDS = 5.0
_MOST = 10_000
_OUR_TOKEN = TOKEN_PREFIX.encode()


class Proof(NamedTuple):
    """What a request shows to be let in."""

    scheme: str
    cookie: bytes
    token: bytes

    @classmethod
    def of(cls, head: RequestHead, scheme: str) -> "Proof":
        """An Authorization that is not ours is the workspace's own, and says nothing here."""
        authorization = head.values.get(b"authorization", b"")
        token = authorization if _OUR_TOKEN in authorization else b""
        return cls(scheme, head.values.get(b"cookie", b""), token)


class Identities:
    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator
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
        identity = await self._authenticator.identify(_connection(proof))
        self._known.pop(proof, None)
        # An answer from before a session ended must not stay.
        if identity is not None and generation == self._generation:
            self._keep(proof, identity, asked)
        return identity

    def forget(self) -> None:
        self._known.clear()
        self._generation += 1

    def _keep(self, proof: Proof, identity: Identity, asked: float) -> None:
        left = SECONDS
        if identity.expires_at is not None:
            left = min(left, (identity.expires_at - datetime.now(UTC)).total_seconds())
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[proof] = (identity, asked + left)


def _connection(proof: Proof) -> HTTPConnection:
    headers = [(b"authorization", proof.token)] if proof.token else [(b"cookie", proof.cookie)]
    return HTTPConnection({"type": "http", "scheme": proof.scheme, "headers": headers})
