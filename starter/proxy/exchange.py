"""One request to a workspace. Nothing of it leaves before it is decided that it may: `_pass` is the only way on."""

import asyncio
from collections.abc import Coroutine
from functools import cached_property
from typing import TYPE_CHECKING

import structlog
from structlog.contextvars import bind_contextvars

from adapters.postgres.database import DatabaseUnavailable
from adapters.postgres.sessions import Identity
from adapters.redis.activity_kinds import ActivityKind
from adapters.telemetry.metrics import PROXY_REQUESTS
from domain.model import UserId
from starter.proxy import answers
from starter.proxy.answers import Answer
from starter.proxy.client import Client
from starter.proxy.decide import CloseTryAgain, Decision, Kind, Page, PageKind, Pass, Unavailable, View, Wake, decide
from starter.proxy.head import RequestHead
from starter.proxy.headers import NO_ACTIVITY
from starter.proxy.hosted import Hosted
from starter.proxy.identities import Proof
from starter.proxy.kinds import is_from_here, kind_of
from starter.proxy.relay import Relay
from starter.proxy.route import AddSlash, Place, Route
from starter.proxy.tunnel import Traffic, Tunnel
from starter.proxy.upstream import Unreachable, Upstream
from starter.proxy.waking import Limited, NotWoken, wake
from starter.request_id import request_id

if TYPE_CHECKING:
    from starter.proxy.door import Door

log = structlog.get_logger()

_PASSED, _SWITCHED, _ANSWERED, _BROKEN, _UNREACHABLE = (
    PROXY_REQUESTS.labels(result) for result in ("passed", "websocket", "answered", "broken", "unreachable")
)

# Sent again on another connection when one that was kept turns out to be dead: the same as sent once.
_REPEATABLE = frozenset({b"GET", b"HEAD", b"OPTIONS"})


class Exchange:
    route: Route
    proof: Proof

    def __init__(self, door: "Door", head: RequestHead, client: Client) -> None:
        self.door = door
        self.proxy = door.proxy
        self.head = head
        self.client = client
        self.close = head.wants_close or door.is_stopping
        self.relay: Relay | None = None
        self.counts = NO_ACTIVITY not in head.values
        self._kind = Kind.OTHER
        self._identity: Identity | None = None
        self._view: View | None = None
        self._has_looked_again = False
        self._is_fresh = False
        self._is_hosted = False
        self._task: asyncio.Task[None] | None = None

    def start(self, found: Place) -> None:
        head, proxy = self.head, self.proxy
        if not is_from_here(head, self.client.scheme):
            self._answer(answers.cross_site())
            return
        self._kind = kind_of(head)
        if not isinstance(found, Route):
            self._answer(
                answers.add_slash(found.location) if isinstance(found, AddSlash) else answers.not_found(self._kind)
            )
            return
        self.route = found
        self._is_hosted = found.is_hosted
        self.proof = Proof.of(head, self.client.scheme, found.workspace_id if found.is_hosted else None)
        identity = proxy.identities.cached(self.proof)
        known = proxy.directory.cached(found.workspace_id)
        if identity is not None and known is not None:
            self._act(identity, known.view)
        else:
            self._later(self._resolve())

    def client_lost(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self.relay is not None:
            self.proxy.open.discard(self.relay)
            self.relay.client_lost()

    def over(self) -> None:
        """The answer was passed on in full."""
        _PASSED.inc()
        if self.relay is not None:
            self.proxy.open.discard(self.relay)
        self.door.response_over(close=self.close)

    def broken(self) -> None:
        """The answer ended too early: that the connection ends with it is how the client knows."""
        _BROKEN.inc()
        if self.relay is not None:
            self.proxy.open.discard(self.relay)
        self.door.transport.close()

    def failed(self, reason: str) -> None:
        """The connection was lost before anything was answered."""
        relay, self.relay = self.relay, None
        if relay is None:
            return
        self.proxy.open.discard(relay)
        if self._is_repeatable and relay.upstream.used:
            self._later(self._connect(relay.upstream.key[1]))
        else:
            self._later(self._unreachable(relay.upstream.key[1], reason))

    def silent(self) -> None:
        """The workspace took the request and says nothing. Asking once more would be as long a wait again."""
        relay, self.relay = self.relay, None
        if relay is not None:
            self.proxy.open.discard(relay)
            self._later(self._unreachable(relay.upstream.key[1], f"no answer within {self.proxy.page_timeout:g} s"))

    def switched(self, upstream: asyncio.Transport, from_upstream: bytes) -> None:
        if self.relay is not None:
            self.proxy.open.discard(self.relay)
        traffic = Traffic(self.route.workspace_id, self.proxy.activity if self.counts else None)
        _SWITCHED.inc()
        tunnel = Tunnel(self.door.transport, upstream, self.proof, traffic)
        self.proxy.open.add(tunnel)
        tunnel.on_close(lambda: self.proxy.open.discard(tunnel))
        self.door.hand_over(tunnel, from_upstream)

    @property
    def patience(self) -> float | None:
        """A person who opens a page is told that nothing comes. A program may wait: for a long poll, for a build."""
        return self.proxy.page_timeout if self._kind is Kind.NAVIGATION else None

    @cached_property
    def request_id(self) -> str:
        """Made when something may have to be said of the request: one that is passed on at once needs none."""
        return request_id(self.head.values.get(b"x-request-id", b"").decode("latin-1"))

    @property
    def _user(self) -> UserId | None:
        return self._identity.user.id if self._identity is not None else None

    @property
    def _is_repeatable(self) -> bool:
        return self.head.method in _REPEATABLE and self.head.body is None and not self.head.is_websocket

    def _act(self, identity: Identity | None, view: View | None) -> None:
        self._identity, self._view = identity, view
        decision = decide(self._user, view, self._kind)
        if isinstance(decision, Pass) and self.route.may_pass:
            self._pass(decision.endpoint)
        elif self.proxy.hosted is not None:
            self._later(self._act_apart(self.proxy.hosted, decision))
        else:
            self._carry_out(decision)

    def _carry_out(self, decision: Decision) -> None:
        match decision:
            case Wake():
                self._later(self._wake())
            case CloseTryAgain():
                self._try_again()
            case _:
                self._answer(answers.of(decision, self._kind, self._view, self.head.target))

    async def _act_apart(self, hosted: Hosted, decision: Decision) -> None:
        """Hub and host send a navigation to each other: by what is known for certain, or it would go in circles."""
        if self._kind is Kind.NAVIGATION and self._identity is not None and not self._is_fresh:
            self._is_fresh = True
            self.proxy.directory.invalidate(self.route.workspace_id)
            self._act(self._identity, await self.proxy.directory.find(self.route.workspace_id))
            return
        answer = await hosted.answer(self.head, self.route, self._kind, self._identity, decision)
        if answer is not None:
            self._answer(answer)
        else:
            self._carry_out(decision)

    def _pass(self, endpoint: str) -> None:
        upstream = self.proxy.pool.take((self.route.workspace_id, endpoint)) if self._is_repeatable else None
        if upstream is not None:
            self._relay(upstream)
        else:
            self._later(self._connect(endpoint))

    def _relay(self, upstream: Upstream) -> None:
        if self.counts:
            self.proxy.activity.saw(self.route.workspace_id, ActivityKind.HTTP)
        self.relay = Relay(self, upstream)
        self.proxy.open.add(self.relay)
        self.door.go_on()

    async def _resolve(self) -> None:
        identity = await self.proxy.identities.find(self.proof)
        if identity is None:
            self._act(None, None)
        else:
            self._act(identity, await self.proxy.directory.find(self.route.workspace_id))

    async def _connect(self, endpoint: str) -> None:
        try:
            upstream = await self.proxy.pool.connect((self.route.workspace_id, endpoint))
        except Unreachable as error:
            await self._unreachable(endpoint, str(error))
        else:
            self._relay(upstream)

    async def _unreachable(self, endpoint: str, reason: str) -> None:
        """It may have stopped, or moved, a moment ago: look again before it is called dead."""
        self.proxy.directory.invalidate(self.route.workspace_id)
        if not self._has_looked_again and self.head.body is None:
            self._has_looked_again = True
            view = await self.proxy.directory.find(self.route.workspace_id)
            if decide(self._user, view, self._kind) != Pass(endpoint):
                self._act(self._identity, view)
                return
        _UNREACHABLE.inc()
        log.warning("workspace_unreachable", workspace=self.route.workspace_id, endpoint=endpoint, error=reason)
        if self._kind is Kind.WEBSOCKET:
            self._try_again()
        else:
            self._answer(answers.of(Page(PageKind.UNREACHABLE), self._kind, self._view, self.head.target))

    async def _wake(self) -> None:
        if self._identity is None or self._view is None:
            raise AssertionError("only its owner wakes a workspace")
        self.proxy.directory.invalidate(self.route.workspace_id)
        try:
            woken = await wake(self.proxy, self._identity.user, self._view, self.request_id)
        except Limited as limited:
            self._answer(answers.limit(limited, self._view))
        except NotWoken:
            if self._has_looked_again:
                self._answer(answers.of(Unavailable(), self._kind, self._view, self.head.target))
                return
            self._has_looked_again = True
            self._act(self._identity, await self.proxy.directory.find(self.route.workspace_id))
        else:
            self.proxy.directory.invalidate(self.route.workspace_id)
            self._answer(answers.follow(woken))

    def _try_again(self) -> None:
        """Accepted and closed: a browser's script sees the code, which it would not of a refusal."""
        _ANSWERED.inc()
        self._send(answers.close_try_again(self.head, self._view), close=True)

    def _answer(self, answer: Answer) -> None:
        _ANSWERED.inc()
        # What is left of a body is not waited for.
        self.close = self.close or self.head.body is not None
        if self._is_hosted and self.proxy.hosted is not None:
            answer = answers.leading_to(answer, self.proxy.hosted.hosts.hub)
        self._send(answer.to_bytes(self.head.method, close=self.close, request_id=self.request_id), close=self.close)

    def _send(self, data: bytes, *, close: bool) -> None:
        self.door.write(data)
        self.door.response_over(close=close)

    def _later(self, work: Coroutine[None, None, None]) -> None:
        self._task = self.proxy.spawn(self._guarded(work))

    async def _guarded(self, work: Coroutine[None, None, None]) -> None:
        # The task is this request's own, and what it says is, too.
        bind_contextvars(request_id=self.request_id)
        try:
            await work
        except DatabaseUnavailable as error:
            log.warning("request_not_decided", workspace=self.route.workspace_id, error=str(error))
            self._answer(answers.database_unavailable(self._kind))
        except Exception:
            log.exception("request_failed", workspace=self.route.workspace_id)
            self._answer(answers.internal(self._kind))
