"""One request to a workspace, and its answer.

Nothing of it leaves for the workspace before it is decided that it may: `_pass` is the only way to a connection. Both
bodies stream; each side is slowed down to the pace of the other.
"""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING

import structlog

from adapters.postgres.database import DatabaseUnavailable
from domain.model import WorkspaceId
from starter.proxy import answers
from starter.proxy.activity import ActivityKind
from starter.proxy.answers import Answer
from starter.proxy.body import Body, Chunks, Length, UntilClose
from starter.proxy.decide import (
    CloseTryAgain,
    Decision,
    Follow,
    Kind,
    LogIn,
    NotFound,
    Page,
    PageKind,
    Pass,
    Refuse,
    Unavailable,
    View,
    Wake,
    decide,
)
from starter.proxy.head import RequestHead, ResponseHead, field_lines
from starter.proxy.headers import NO_ACTIVITY, chunk, last_chunk, request_head, response_lines, trailer_lines
from starter.proxy.identities import Proof
from starter.proxy.kinds import is_from_here, kind_of
from starter.proxy.route import AddSlash, Route, route
from starter.proxy.tunnel import Tunnel
from starter.proxy.upstream import Unreachable, Upstream
from starter.proxy.waking import Limited, wake

if TYPE_CHECKING:
    from starter.proxy.door import Door

log = structlog.get_logger()

# Sent again on another connection when one that was kept turns out to be dead: the same as sent once.
_REPEATABLE = frozenset({b"GET", b"HEAD", b"OPTIONS"})
