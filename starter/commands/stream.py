"""Live events of a server, read in a thread of its own; after an interruption it comes back by itself."""

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from types import TracebackType
from typing import Any, Self

from starter.commands.failure import CommandFailed, Exit
from starter.commands.server import Server

PATH = "/api/v1/events"
# The server's heartbeat comes every 30 seconds: silence beyond it is a connection that is gone.
SILENCE_SECONDS = 45.0
RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Event:
    """`connected` and `interrupted` are about the stream itself; the others are the server's."""

    name: str
    body: dict[str, Any] = field(default_factory=dict)


class Stream:
    """`with Stream(server) as events`: `events.next(seconds)` gives the next one, or None when the time is over."""

    def __init__(self, server: Server) -> None:
        # A connection of its own: the caller goes on using theirs.
        self._server = Server(server.url, server.token)
        self._events: queue.SimpleQueue[Event | CommandFailed] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._last_id: str | None = None
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def next(self, seconds: float | None) -> Event | None:
        """Raises CommandFailed when there will be no more: the login is not valid, or there are no live events."""
        try:
            found = self._events.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(found, CommandFailed):
            raise found
        return found

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The thread may sit in a read; it ends with the process, or with the next heartbeat.
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._follow()
            except CommandFailed as error:
                if error.exit_code is not Exit.UNREACHABLE or error.code == "events_unavailable":
                    self._events.put(error)
                    return
                self._events.put(Event("interrupted", {"message": error.message}))
            except (OSError, HTTPException, ValueError):
                self._events.put(Event("interrupted", {"message": f"The connection to {self._server.url} broke."}))
            self._stop.wait(RETRY_SECONDS)

    def _follow(self) -> None:
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": self._last_id} if self._last_id else {})}
        with self._server.stream(PATH, headers, SILENCE_SECONDS) as response:
            self._events.put(Event("connected"))
            for event in self._parsed(response):
                if self._stop.is_set():
                    return
                self._events.put(event)
        self._events.put(Event("interrupted", {"message": f"{self._server.url} ended the stream."}))

    def _parsed(self, lines: HTTPResponse) -> Iterator[Event]:
        fields: dict[str, str] = {}
        for raw in lines:
            line = raw.decode(errors="replace").rstrip("\r\n")
            if line:
                name, _, value = line.partition(":")
                fields[name] = value.removeprefix(" ")
                continue
            self._last_id = fields.get("id", self._last_id)
            if "data" in fields:
                with suppress(ValueError):
                    yield Event(fields.get("event", "message"), json.loads(fields["data"]))
            fields = {}
