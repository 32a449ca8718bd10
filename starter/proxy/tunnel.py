"""A WebSocket that passes: bytes as they come, both ways. Frames are looked at only to tell what is activity."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from adapters.redis.activity_kinds import ActivityKind
from domain.model import WorkspaceId
from starter.proxy.activity import Activity
from starter.proxy.frames import FrameScanner, close_frame
from starter.proxy.identities import Proof
from starter.proxy.upstream import keep_alive

SERVICE_RESTART = 1012
POLICY = 1008
# After one side has ended, the other has this long to end as well.
_HALF_OPEN_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Traffic:
    """Whose activity it is; None where it is nobody's."""

    workspace_id: WorkspaceId
    activity: Activity | None


class Tunnel:
    def __init__(self, client: asyncio.Transport, upstream: asyncio.Transport, proof: Proof, traffic: Traffic) -> None:
        self.proof = proof
        self.client_end = End(self, client, traffic, ActivityKind.TO_WORKSPACE)
        self.upstream_end = End(self, upstream, traffic, ActivityKind.FROM_WORKSPACE)
        self.client_end.peer, self.upstream_end.peer = self.upstream_end, self.client_end
        self._on_close: list[Callable[[], Any]] = []
        self._timer: asyncio.TimerHandle | None = None

    def open(self, from_client: bytes, from_upstream: bytes) -> None:
        """Take both connections over, with what has come on them already."""
        for end, data in ((self.client_end, from_client), (self.upstream_end, from_upstream)):
            keep_alive(end.transport)
            end.transport.set_protocol(end)
            if data:
                end.data_received(data)

    def on_close(self, call: Callable[[], Any]) -> None:
        self._on_close.append(call)

    def cut(self, code: int = POLICY, reason: str = "") -> None:
        """End it from here; the client is told why, where a frame of ours fits in."""
        if self.upstream_end.scanner.is_at_boundary and not self.client_end.transport.is_closing():
            self.client_end.transport.write(close_frame(code, reason))
        self.client_end.transport.close()
        self.upstream_end.transport.close()

    def half_closed(self, end: "End") -> None:
        if end.peer.ended or not end.peer.transport.can_write_eof():
            self._close()
            return
        if not end.peer.transport.is_closing():
            end.peer.transport.write_eof()
        self._timer = asyncio.get_running_loop().call_later(_HALF_OPEN_SECONDS, self._close)

    def lost(self, end: "End") -> None:
        if self._timer is not None:
            self._timer.cancel()
        end.peer.transport.close()
        calls, self._on_close = self._on_close, []
        for call in calls:
            call()

    def _close(self) -> None:
        self.client_end.transport.close()
        self.upstream_end.transport.close()


class End(asyncio.Protocol):
    """One of the two connections."""

    peer: "End"

    def __init__(self, tunnel: Tunnel, transport: asyncio.Transport, traffic: Traffic, kind: ActivityKind) -> None:
        self.transport = transport
        self.scanner = FrameScanner()
        self.ended = False
        self._tunnel = tunnel
        self._traffic = traffic
        self._kind = kind

    def data_received(self, data: bytes) -> None:
        traffic = self._traffic
        if self.scanner.saw_activity(data) and traffic.activity is not None:
            traffic.activity.saw(traffic.workspace_id, self._kind)
        if not self.peer.transport.is_closing():
            self.peer.transport.write(data)

    def eof_received(self) -> bool:
        self.ended = True
        self._tunnel.half_closed(self)
        return True

    def connection_lost(self, _: Exception | None) -> None:
        self._tunnel.lost(self)

    def pause_writing(self) -> None:
        self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        self.peer.transport.resume_reading()

    def shutdown(self) -> None:
        """The server stops (uvicorn calls this on every connection)."""
        self._tunnel.cut(SERVICE_RESTART, "codehub restarts")
