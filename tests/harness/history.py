"""What clients were told, and whether the world keeps it (issue 6: no acknowledged change is lost).

Every command is noted with when it was sent and answered. A command that was answered has happened between the two; of
one whose answer was lost nobody knows whether it happened, then or later. So a value may stand at the end when its
command was done or unknown, and no other command that was done was sent after its answer.
"""

import math
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

from domain.model import WorkspaceId


class Outcome(StrEnum):
    DONE = "DONE"
    REFUSED = "REFUSED"
    """The answer says that nothing happened."""
    UNKNOWN = "UNKNOWN"
    """No answer, or one that does not tell."""


@dataclass(slots=True)
class Command:
    workspace: WorkspaceId
    what: str
    """The thing that it sets: `desired_state`, `memo`, a file of the home."""
    value: str
    sent: float
    answered: float = math.inf
    outcome: Outcome = Outcome.UNKNOWN

    def answer(self, outcome: Outcome) -> None:
        self.answered, self.outcome = time.monotonic(), outcome


@dataclass(slots=True)
class History:
    commands: list[Command] = field(default_factory=list)

    @contextmanager
    def asking(self, workspace: WorkspaceId, what: str, value: str) -> Iterator[Command]:
        """Noted before it is sent; unknown until `answer` is called."""
        command = Command(workspace, what, value, time.monotonic())
        self.commands.append(command)
        yield command

    def note(self, workspace: WorkspaceId, what: str, value: str, sent: float) -> None:
        """For what has a name only once it is done: a create."""
        self.commands.append(Command(workspace, what, value, sent, time.monotonic(), Outcome.DONE))

    def count(self, outcome: Outcome) -> int:
        return sum(command.outcome is outcome for command in self.commands)

    def subjects(self) -> set[tuple[WorkspaceId, str]]:
        return {(command.workspace, command.what) for command in self.commands}

    def may_stand(self, workspace: WorkspaceId, what: str) -> set[str]:
        """The values that may be found at the end."""
        about = [each for each in self.commands if (each.workspace, each.what) == (workspace, what)]
        done = [each for each in about if each.outcome is Outcome.DONE]
        happened = [each for each in about if each.outcome is not Outcome.REFUSED]
        return {each.value for each in happened if not any(later.sent > each.answered for later in done)}


Final = Mapping[tuple[WorkspaceId, str], str]
NEVER = "(nothing)"


def lost(history: History, final: Final) -> list[str]:
    """Acknowledged changes that the end does not show, and values that nobody can have set."""
    return list(_lost(history, final))


def _lost(history: History, final: Final) -> Iterable[str]:
    for workspace, what in sorted(history.subjects()):
        found = final.get((workspace, what), NEVER)
        allowed = history.may_stand(workspace, what)
        acknowledged = any(
            command.outcome is Outcome.DONE and (command.workspace, command.what) == (workspace, what)
            for command in history.commands
        )
        if found not in allowed and (acknowledged or found != NEVER):
            yield f"{what} of {workspace} is {found}, and should be one of {sorted(allowed)}"


async def watch(limit: int, count: Callable[[], Awaitable[int]], over: list[str]) -> None:
    """Until it is cancelled: notes every moment at which there were more than allowed."""
    while True:
        found = await count()
        if found > limit:
            over.append(f"{found} at once, and {limit} are allowed")
