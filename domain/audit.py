"""Who changed what, when and why, and how to say it in a sentence. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from domain.model import UserId


class ActorKind(StrEnum):
    USER = "user"
    ADMIN = "admin"
    AUTO_WAKE = "auto-wake"
    """A person who opened a workspace that slept."""
    TTL = "ttl"
    DRAIN = "drain"
    """A node that is being emptied."""
    SYSTEM = "system"
    DRIFT = "drift"
    """Nobody asked: containers or volumes changed behind codehub's back."""
    DATABASE = "database"
    """Somebody with access to PostgreSQL, or a version of codehub that does not say who."""


@dataclass(frozen=True, slots=True)
class Actor:
    """On whose behalf something is changed."""

    kind: ActorKind
    name: str | None = None
    id: UserId | None = None
    reason: str | None = None
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A line of the audit log."""

    at: datetime
    subject: str
    subject_id: str
    action: str
    actor_kind: ActorKind
    actor: str | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    """`{column: [before, after]}`; of long texts and passwords only that they changed."""
    reason: str | None = None
    request_id: str | None = None


def in_words(change: Change, phase: str | None = None) -> str:
    """`phase` is where the workspace is by now, for a reader who asks how it is and not what happened then."""
    who = _who(change)
    match change.action:
        case action if change.subject == "node":
            text = f"{who} {action} node {change.changes.get('name')}"
        case "created" if change.subject == "workspace":
            text = f"{who} created it, to be {_after(change, 'desired_state')}"
        case "created":
            text = f"{who} created it"
        case "desired_state":
            text = f"{who} asked for {_after(change, 'desired_state')}"
        case "deleted":
            text = f"{who} asked for its deletion"
        case "recovered":
            text = f"{who} recovered it from {_before(change, 'error_reason')}"
        case "moved":
            text = f"its home moves from node {_before(change, 'node')} to {_after(change, 'node')}"
        case "revoked":
            text = f"{who} revoked it"
        case "drifted":
            back = f", and is {phase} again" if phase == _before(change, "phase") else ""
            text = f"it was found {_after(change, 'phase')} instead of {_before(change, 'phase')}{back}"
        case _:
            text = f"{who} changed {', '.join(sorted(_shown(name) for name in change.changes)) or 'nothing'}"
    return f"{text} ({change.reason})" if change.reason else text


def _who(change: Change) -> str:
    match change.actor_kind:
        case ActorKind.AUTO_WAKE:
            return f"{change.actor or 'somebody'} opened it and"
        case ActorKind.TTL:
            return "its TTL"
        case ActorKind.DATABASE:
            return f"somebody with the database's login {change.actor or ''}".rstrip()
    return change.actor or str(change.actor_kind)


def _shown(name: str) -> str:
    return "the password" if name == "password_hash" else name


def _before(change: Change, name: str) -> Any:
    return _pair(change, name)[0]


def _after(change: Change, name: str) -> Any:
    return _pair(change, name)[1]


def _pair(change: Change, name: str) -> tuple[Any, Any]:
    match change.changes.get(name):
        case [before, after]:
            return before, after
    return "?", "?"
