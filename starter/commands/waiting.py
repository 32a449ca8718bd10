"""`--wait`: follow a workspace until it is where it was asked to be."""

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from starter.commands.failure import CommandFailed, Exit
from starter.commands.goal import Goal, Verdict
from starter.commands.history import last_message
from starter.commands.interrupting import end_at_the_second
from starter.commands.names import called, path
from starter.commands.progress import Display, display
from starter.commands.screen import Workspace
from starter.commands.server import Server
from starter.commands.stream import Event, Stream

# Events tell at once; looking tells for certain. A lost event costs this much time, never the answer.
LOOK_SECONDS = 1.0
LOOK_BESIDE_EVENTS_SECONDS = 5.0
# A server that restarts comes back; one that is away for longer is not waited for.
AWAY_SECONDS = 60.0
AWAY = "codehub does not answer, trying again"


def wait_for(server: Server, ws: Workspace, goal: Goal, timeout: float | None, *, as_json: bool) -> Workspace | None:
    """The workspace as it is in the end; None when it is deleted. Raises CommandFailed for any other end."""
    end_at_the_second()
    shown = display(as_json=as_json)
    waiting = _Waiting(server, ws, goal, timeout, shown)
    try:
        with shown, Stream(server) as events:
            return waiting.until_reached(events)
    except KeyboardInterrupt:
        raise CommandFailed(f"Not followed any more: {waiting.story()}.", Exit.INTERRUPTED) from None


@dataclass(slots=True)
class _Waiting:
    server: Server
    ws: Workspace
    goal: Goal
    timeout: float | None
    display: Display
    live: bool = False
    away: bool = False
    began: float = 0.0
    looked_at: float = 0.0
    answered_at: float = 0.0
    failures: int = 0
    said: str | None = None
    """What the last of the failed attempts had to say."""

    def story(self) -> str:
        ws = self.ws
        doing = f", {ws['operation']} is under way" if ws["operation"] != "NONE" else ""
        return f"{ws['name']} is {ws['phase']}{doing}; it goes on towards {self.goal.phase} by itself"

    def until_reached(self, events: Stream) -> Workspace | None:
        self.began = self.looked_at = self.answered_at = time.monotonic()
        current: Workspace | None = self.ws
        while (verdict := self.goal.judge(current)) is Verdict.WAITING and current is not None:
            self.ws = current
            self._listen()
            self.display.show(current, None, AWAY if self.away else self.said)
            current = self._next(events)
        self.ws = current or self.ws
        self.display.end(well=verdict is Verdict.REACHED)
        if verdict is not Verdict.REACHED:
            raise self._failure(verdict)
        return current

    def _next(self, events: Stream) -> Workspace | None:
        """The workspace as it is now, from whichever source tells first."""
        while True:
            self._check_time()
            # Events are of one's own workspaces: of another's, looking is all there is.
            pause = LOOK_BESIDE_EVENTS_SECONDS if self.live and "owner" not in self.ws else LOOK_SECONDS
            due = self.looked_at + pause
            if self.timeout is not None:
                due = min(due, self.began + self.timeout)
            event = self._event(events, max(0.0, due - time.monotonic()))
            if event is None:
                self._check_time()
                return self._look()
            match event.name:
                case "connected":
                    # What happened before the stream began is not told on it.
                    self.live = True
                    return self._look()
                case "interrupted":
                    self.live = False
                case "workspace_updated" if event.body["id"] == self.ws["id"]:
                    self.answered_at = time.monotonic()
                    self.away = False
                    return event.body
                case "workspace_deleted" if event.body["id"] == self.ws["id"]:
                    return None
                case "workspace_progress" if event.body["id"] == self.ws["id"]:
                    self.away = False
                    self.display.show(self.ws, event.body, self.said)

    def _event(self, events: Stream, seconds: float) -> Event | None:
        try:
            return events.next(seconds)
        except CommandFailed as error:
            if error.exit_code is Exit.NOT_LOGGED_IN:
                raise
            # No live events on this server: looking has to do.
            self.live = False
            return None

    def _check_time(self) -> None:
        if self.timeout is not None and time.monotonic() >= self.began + self.timeout:
            raise CommandFailed(f"The time is over: {self.story()}.", Exit.TIMED_OUT)

    def _look(self) -> Workspace | None:
        self.looked_at = time.monotonic()
        try:
            found: Workspace = self.server.get(path(self.ws))
        except CommandFailed as error:
            if error.exit_code is Exit.NOT_FOUND:
                return None
            if error.exit_code is not Exit.UNREACHABLE or time.monotonic() - self.answered_at > AWAY_SECONDS:
                raise
            self.away = True
            return self.ws
        self.answered_at = time.monotonic()
        self.away = False
        return found

    def _listen(self) -> None:
        """Each failed attempt is asked once for what it had to say."""
        if self.ws["error_count"] == self.failures:
            return
        self.failures, self.said = self.ws["error_count"], None
        if not self.failures:
            return
        # Why is beside the point while nobody answers: looking will tell of that.
        with suppress(CommandFailed):
            (latest, *_) = self.server.get(f"{path(self.ws)}/operations", limit=1)["items"] or [{}]
            self.said = latest.get("error_message")

    def _failure(self, verdict: Verdict) -> CommandFailed:
        ws = self.ws
        match verdict:
            case Verdict.OVERTAKEN:
                text = f"{ws['name']} is now wanted {ws['desired_state']}: somebody else asked for it meanwhile."
                return CommandFailed(text, Exit.CONFLICT, code="overtaken")
            case Verdict.GONE:
                return CommandFailed(f"{ws['name']} was deleted meanwhile.", Exit.NOT_FOUND)
        return CommandFailed(f"{ws['name']} is in ERROR, {ws['error_reason']}: {self._advice()}", Exit.IN_ERROR)

    def _advice(self) -> str:
        try:
            told: dict[str, Any] = self.server.get(f"{path(self.ws)}/explain")
            message = last_message(self.server, self.ws)
        except CommandFailed:
            return f"codehub explain {called(self.ws)} says more."
        parts = (told["because"], f"({message})" if message else None, told["what_to_do"])
        return " ".join(part for part in parts if part)
