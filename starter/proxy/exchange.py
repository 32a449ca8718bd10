"""One request to a workspace. Nothing of it leaves before it is decided that it may: `_pass` is the only way on."""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING

import structlog

from adapters.postgres.database import DatabaseUnavailable
from domain.model import UserId
from starter.proxy import answers
from starter.proxy.activity import ActivityKind
from starter.proxy.answers import Answer
from starter.proxy.client import Client
from starter.proxy.decide import CloseTryAgain, Kind, Page, PageKind, Pass, Unavailable, View, Wake, decide
from starter.proxy.head import RequestHead
from starter.proxy.headers import NO_ACTIVITY
from starter.proxy.identities import Proof
from starter.proxy.kinds import is_from_here, kind_of
from starter.proxy.relay import Relay
from starter.proxy.route import AddSlash, Route, route
from starter.proxy.tunnel import Traffic, Tunnel
from starter.proxy.upstream import Unreachable, Upstream
from starter.proxy.waking import Limited, NotWoken, wake

if TYPE_CHECKING:
    from starter.proxy.door import Door

log = structlog.get_logger()

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
        self._user: UserId | None = None
        self._view: View | None = None
        self._has_looked_again = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        head, proxy = self.head, self.proxy
        found = route(head.host, head.target)
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
        self.proof = Proof.of(head, self.client.scheme)
        identity = proxy.identities.cached(self.proof)
        known = proxy.directory.cached(found.workspace_id)
        if identity is not None and known is not None:
            self._act(identity.user.id, known.view)
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
        if self.relay is not None:
            self.proxy.open.discard(self.relay)
        self.door.response_over(close=self.close)

    def broken(self) -> None:
        """The answer ended too early: that the connection ends with it is how the client knows."""
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

    def switched(self, upstream: asyncio.Transport, from_upstream: bytes) -> None:
        if self.relay is not None:
            self.proxy.open.discard(self.relay)
        traffic = Traffic(self.route.workspace_id, self.proxy.activity if self.counts else None)
        tunnel = Tunnel(self.door.transport, upstream, self.proof, traffic)
        self.proxy.open.add(tunnel)
        tunnel.on_close(lambda: self.proxy.open.discard(tunnel))
        self.door.hand_over(tunnel, from_upstream)

    @property
    def _is_repeatable(self) -> bool:
        return self.head.method in _REPEATABLE and self.head.body is None and not self.head.is_websocket

    def _act(self, user: UserId | None, view: View | None) -> None:
        self._user, self._view = user, view
        decision = decide(user, view, self._kind)
        match decision:
            case Pass(endpoint):
                self._pass(endpoint)
            case Wake():
                self._later(self._wake())
            case CloseTryAgain():
                self._try_again()
            case _:
                self._answer(answers.of(decision, self._kind, view, self.head.target))

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
            self._act(identity.user.id, await self.proxy.directory.find(self.route.workspace_id))

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
                self._act(self._user, view)
                return
        log.warning("workspace_unreachable", workspace=self.route.workspace_id, endpoint=endpoint, error=reason)
        if self._kind is Kind.WEBSOCKET:
            self._try_again()
        else:
            self._answer(answers.of(Page(PageKind.UNREACHABLE), self._kind, self._view, self.head.target))

    async def _wake(self) -> None:
        if self._user is None or self._view is None:
            raise AssertionError("only its owner wakes a workspace")
        self.proxy.directory.invalidate(self.route.workspace_id)
        try:
            woken = await wake(self.proxy, self._user, self._view)
        except Limited as limited:
            self._answer(answers.limit(limited, self._view))
        except NotWoken:
            if self._has_looked_again:
                self._answer(answers.of(Unavailable(), self._kind, self._view, self.head.target))
                return
            self._has_looked_again = True
            self._act(self._user, await self.proxy.directory.find(self.route.workspace_id))
        else:
            self.proxy.directory.invalidate(self.route.workspace_id)
            self._answer(answers.follow(woken))

    def _try_again(self) -> None:
        """Accepted and closed: a browser's script sees the code, which it would not of a refusal."""
        self._send(answers.close_try_again(self.head, self._view), close=True)

    def _answer(self, answer: Answer) -> None:
        # What is left of a body is not waited for.
        self.close = self.close or self.head.body is not None
        self._send(answer.to_bytes(self.head.method, close=self.close), close=self.close)

    def _send(self, data: bytes, *, close: bool) -> None:
        self.door.write(data)
        self.door.response_over(close=close)

    def _later(self, work: Coroutine[None, None, None]) -> None:
        self._task = self.proxy.spawn(self._guarded(work))

    async def _guarded(self, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except DatabaseUnavailable as error:
            log.warning("request_not_decided", error=str(error))
            self._answer(answers.database_unavailable(self._kind))
        except Exception:
            log.exception("request_failed", workspace=self.route.workspace_id)
            self._answer(answers.internal(self._kind))
