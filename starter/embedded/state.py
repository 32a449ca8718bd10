"""Ports and secrets of the embedded services, made at first start and kept in DATA/state.json."""

import contextlib
import json
import os
import secrets
import socket
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from starter.embedded.errors import EmbeddedError

# Below the range that outgoing connections take their own port from (Linux: 32768 and up, macOS: 49152 and up):
# no client's connection can sit on the port of a service while that service restarts, and a client that
# retries a closed port can't end up connected to itself.
LOWEST_PORT, HIGHEST_PORT = 12000, 22000

T = TypeVar("T")


class State:
    """What the embedded services must find again at the next start. Saved before anyone uses it."""

    def __init__(self, data: Path) -> None:
        self.path = data / "state.json"
        self._values = _read(self.path)
        self._given: set[int] = set()
        self._held: list[int] = []
        weakref.finalize(self, _let_go, self._held)

    def port(self, name: str, *, also: int = 0) -> int:
        """The kept port if it is free, else another one. `also`: port + also must be free too. For as long as this
        object lives, no other start on this machine chooses it."""
        kept = self._values["ports"].get(name)
        if isinstance(kept, int) and self._take(kept, also, former=True):
            return kept
        for _ in range(1000):
            port = LOWEST_PORT + secrets.randbelow(HIGHEST_PORT - LOWEST_PORT)
            if self._take(port, also):
                return self._keep("ports", name, port)
        raise EmbeddedError(
            f"No free port on 127.0.0.1 between {LOWEST_PORT} and {HIGHEST_PORT} for {name}: stop what uses them."
        )

    def secret(self, name: str, make: Callable[[], str] = lambda: secrets.token_urlsafe(24)) -> str:
        kept = self._values["secrets"].get(name)
        return kept if isinstance(kept, str) else self._keep("secrets", name, make())

    def note(self, name: str, make: Callable[[], str]) -> str:
        """A value that is chosen once, such as a subnet."""
        kept = self._values["notes"].get(name)
        return kept if isinstance(kept, str) else self._keep("notes", name, make())

    def forget(self, name: str) -> None:
        """Let `note` choose again."""
        self._values["notes"].pop(name, None)

    def _take(self, port: int, also: int, *, former: bool = False) -> bool:
        wanted = {port, port + also}
        if wanted & self._given:
            return False
        held = [handle for number in wanted if (handle := _hold(number, former=former)) is not None]
        if len(held) < len(wanted):
            _let_go(held)
            return False
        self._given |= wanted
        if sys.platform == "linux":
            self._held += held
        else:
            # Elsewhere two may not be bound to one port, listening or not.
            _let_go(held)
        return True

    def _keep(self, kind: str, name: str, value: T) -> T:
        self._values[kind][name] = value
        write_atomically(self.path, json.dumps(self._values, indent=2, sort_keys=True) + "\n")
        return value


def _hold(port: int, *, former: bool) -> int | None:
    """A socket on it that does not listen, or None where it is taken: it keeps out whoever chooses a port at the same
    moment, and lets in the server that it is for. `former`: it was ours, and what its connections have left behind (in
    TIME_WAIT) does not count as taken.
    """
    with socket.socket() as handle:
        if former:
            handle.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            handle.bind(("127.0.0.1", port))
        except OSError:
            return None
        # As servers ask for it: then both may have it, if only one of them listens.
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return handle.detach()


def _let_go(handles: list[int]) -> None:
    for handle in handles:
        os.close(handle)
    handles.clear()


def write_atomically(path: Path, text: str) -> None:
    """After a crash at any moment the file holds the old text or the new one, never a part."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise EmbeddedError(f"Can't write {path} ({error.strerror}): make room or fix its permissions.") from error


def _read(path: Path) -> dict[str, dict[str, Any]]:
    empty: dict[str, dict[str, Any]] = {"ports": {}, "secrets": {}, "notes": {}}
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return empty
    except OSError as error:
        raise EmbeddedError(f"Can't read {path} ({error.strerror}): start as the user who made it.") from error
    try:
        kept = json.loads(text)
        return {kind: dict(kept.get(kind, {})) for kind in empty}
    except (ValueError, AttributeError, TypeError) as error:
        raise EmbeddedError(
            f"{path} is damaged ({error}): it holds the passwords of the data beside it. Restore it from a backup, "
            f"or move {path.parent} away to start with nothing."
        ) from error
