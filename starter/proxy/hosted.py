"""Workspaces on host names of their own: who comes in there, and by which way (ADR 0014).

The hub's session cookie never reaches such a host. A browser that has none of the host's own is sent to the hub with a
`state` that it keeps in a cookie; the hub, where the person is logged in, sends it back with a ticket, good once, for
half a minute and for that state; the host takes it for a cookie of its own. Pages that need the API stay at the hub.
"""

import secrets
import time
from datetime import UTC, datetime
from urllib.parse import parse_qs, quote

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from adapters.postgres.sessions import Identity, Sessions
from domain.hosts import Hosts
from domain.model import WorkspaceId
from starter.proxy import answers
from starter.proxy.answers import Answer
from starter.proxy.cookies import ENTERED_COOKIE, ENTERING_COOKIE, SECURE, values_of
from starter.proxy.decide import Decision, Follow, Kind, LogIn, NotFound, Page, Pass, Wake
from starter.proxy.head import RequestHead
from starter.proxy.route import RESERVED, Route
from starter.proxy.tickets import SECONDS, new_cookie, new_ticket, read_cookie, read_ticket

log = structlog.get_logger()

_ENTER = RESERVED + b"enter?"
_USED_KEY = "codehub:ticket:"


class Hosted:
    def __init__(self, hosts: Hosts, sessions: Sessions, redis: Redis) -> None:
        self.hosts = hosts
        self._sessions = sessions
        self._redis = redis
        prefix = SECURE if hosts.is_secure else ""
        self._entered, self._entering = prefix + ENTERED_COOKIE, prefix + ENTERING_COOKIE

    async def identify(self, cookie: bytes, workspace_id: WorkspaceId) -> Identity | None:
        """By the host's own cookie. Raises DatabaseUnavailable."""
        for value in values_of(cookie, self._entered):
            entered = read_cookie(value)
            for session in await self._sessions.of_user(entered.user_id) if entered else ():
                if entered is not None and entered.is_of(session, workspace_id):
                    return session
        return None

    async def answer(
        self, head: RequestHead, route: Route, kind: Kind, identity: Identity | None, decision: Decision
    ) -> Answer | None:
        """What is answered because hosts are apart; None: what is answered anyway. Raises DatabaseUnavailable."""
        if route.is_hosted:
            return await self._at_host(head, route, kind, decision)
        return self._at_hub(route, kind, identity, decision)

    def _at_hub(self, route: Route, kind: Kind, identity: Identity | None, decision: Decision) -> Answer | None:
        there = self.hosts.url(route.workspace_id)
        is_entering = route.target.startswith(_ENTER)
        if isinstance(decision, Pass):
            if kind is not Kind.NAVIGATION:
                return answers.error(421, "other_host", f"This workspace is at {there}/ and nowhere else.")
            if not is_entering:
                return answers.see_other(there + route.target.decode("ascii"))
            if identity is None or not identity.by_session:
                return answers.unauthenticated()
            state, to = _asked(route.target, "state")
            ticket = new_ticket(
                identity, route.workspace_id, state, int(time.time()) + SECONDS, secrets.token_urlsafe(24)
            )
            return answers.see_other(f"{there}{RESERVED.decode()}enter?ticket={ticket}&to={quote(to, safe='')}")
        if is_entering and isinstance(decision, (Wake, Follow, Page)):
            # Its page is here, and leads there when it runs.
            return answers.see_other(self._page(route.workspace_id, _asked(route.target, "state")[1]))
        return None

    async def _at_host(self, head: RequestHead, route: Route, kind: Kind, decision: Decision) -> Answer | None:
        if route.target.startswith(_ENTER) and head.method == b"GET":
            return await self._enter(head, route)
        if not route.may_pass:
            return answers.not_found(Kind.OTHER)
        to = route.target.decode("ascii")
        if isinstance(decision, LogIn):
            state = secrets.token_urlsafe(24)
            back = f"{RESERVED.decode()}enter?state={state}&to={quote(to, safe='')}"
            return answers.see_other(
                self._page(route.workspace_id, back), self._cookie(self._entering, state, SECONDS * 20)
            )
        if kind is Kind.NAVIGATION and isinstance(decision, (Wake, Follow, Page, NotFound)):
            return answers.see_other(self._page(route.workspace_id, to))
        return None

    async def _enter(self, head: RequestHead, route: Route) -> Answer:
        text, to = _asked(route.target, "ticket")
        try:
            session = await self._used(text, head.values.get(b"cookie", b""), route.workspace_id)
        except (RedisError, OSError) as error:
            log.warning("ticket_not_taken", workspace=route.workspace_id, error=str(error))
            return answers.try_again()
        if session is None:
            return answers.not_let_in(f"{self.hosts.hub}/w/{route.workspace_id}/")
        left = int((session.expires_at - datetime.now(UTC)).total_seconds()) if session.expires_at else SECONDS
        return answers.see_other(
            self.hosts.url(route.workspace_id) + to,
            self._cookie(self._entered, new_cookie(session, route.workspace_id), left)
            + self._cookie(self._entering, "", 0),
        )

    async def _used(self, text: str, cookie: bytes, workspace_id: WorkspaceId) -> Identity | None:
        """The session that the ticket is of, if it is good; from now on it isn't."""
        ticket = read_ticket(text)
        if ticket is None or not time.time() < ticket.expires <= time.time() + SECONDS:
            return None
        states = values_of(cookie, self._entering)
        for session in await self._sessions.of_user(ticket.user_id):
            if any(ticket.is_of(session, workspace_id, state) for state in states if state):
                is_first = await self._redis.set(_USED_KEY + ticket.nonce, b"1", nx=True, ex=SECONDS * 2)
                return session if is_first else None
        return None

    def _page(self, workspace_id: WorkspaceId, target: str) -> str:
        return f"{self.hosts.hub}/w/{workspace_id}{target}"

    def _cookie(self, name: str, value: str, seconds: int) -> str:
        secure = "; Secure" if self.hosts.is_secure else ""
        return f"Set-Cookie: {name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}\r\n"


def _asked(target: bytes, name: str) -> tuple[str, str]:
    """A value of the query, and the path to go on to."""
    query = parse_qs(target.partition(b"?")[2].decode("ascii"), errors="replace")
    to = query.get("to", ["/"])[0]
    is_path = to.startswith("/") and to.isascii() and to.isprintable() and " " not in to
    return query.get(name, [""])[0], to if is_path else "/"
