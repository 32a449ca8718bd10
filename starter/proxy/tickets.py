"""How a login at the hub reaches a workspace's own host: a ticket on the way, a cookie from then on. Pure.

Both are proofs by the hash of the session's secret, which nobody but the database has: no store of their own, each good
for one workspace, gone with the session, and of no use to the API, which wants the secret itself.
"""

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass

from adapters.postgres.sessions import Identity
from domain.model import UserId, WorkspaceId

SECONDS = 30

_USER = r"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"
_TICKET = re.compile(rf"{_USER}\.([0-9]{{1,12}})\.([A-Za-z0-9_-]{{16,64}})\.([A-Za-z0-9_-]{{43}})")
_COOKIE = re.compile(rf"{_USER}\.([A-Za-z0-9_-]{{43}})")


@dataclass(frozen=True, slots=True)
class Ticket:
    """Good until `expires` (seconds since 1970), once (`nonce`), in the browser that has `state`."""

    user_id: UserId
    expires: int
    nonce: str
    proof: str

    def is_of(self, session: Identity, workspace_id: WorkspaceId, state: str) -> bool:
        return hmac.compare_digest(self.proof, _ticket_proof(session, workspace_id, state, self.expires, self.nonce))


@dataclass(frozen=True, slots=True)
class Entered:
    """What the cookie says."""

    user_id: UserId
    proof: str

    def is_of(self, session: Identity, workspace_id: WorkspaceId) -> bool:
        return hmac.compare_digest(self.proof, _cookie_proof(session, workspace_id))


def new_ticket(session: Identity, workspace_id: WorkspaceId, state: str, expires: int, nonce: str) -> str:
    proof = _ticket_proof(session, workspace_id, state, expires, nonce)
    return f"{session.user.id}.{expires}.{nonce}.{proof}"


def read_ticket(text: str) -> Ticket | None:
    found = _TICKET.fullmatch(text)
    return Ticket(UserId(found[1]), int(found[2]), found[3], found[4]) if found else None


def new_cookie(session: Identity, workspace_id: WorkspaceId) -> str:
    return f"{session.user.id}.{_cookie_proof(session, workspace_id)}"


def read_cookie(text: str) -> Entered | None:
    found = _COOKIE.fullmatch(text)
    return Entered(UserId(found[1]), found[2]) if found else None


def _ticket_proof(session: Identity, workspace_id: WorkspaceId, state: str, expires: int, nonce: str) -> str:
    return _proof(session, "ticket", workspace_id, state, str(expires), nonce)


def _cookie_proof(session: Identity, workspace_id: WorkspaceId) -> str:
    return _proof(session, "cookie", workspace_id)


def _proof(session: Identity, *said: str) -> str:
    digest = hmac.new(session.token_hash, "\0".join(said).encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
