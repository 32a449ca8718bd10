"""Whether what was asked for has come true. Pure."""

from dataclasses import dataclass
from enum import Enum
from typing import Self

from starter.commands.screen import Workspace


class Verdict(Enum):
    WAITING = "waiting"
    REACHED = "reached"
    IN_ERROR = "in error"
    OVERTAKEN = "overtaken"
    """Somebody has asked for something else meanwhile."""
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Goal:
    """A phase, and the error that the workspace had when it was asked for: that one is no new failure."""

    phase: str
    error: tuple[str | None, str]

    @classmethod
    def of(cls, phase: str, ws: Workspace) -> Self:
        return cls(phase, _error(ws))

    def judge(self, ws: Workspace | None) -> Verdict:
        """None: the server knows no such workspace any more."""
        if ws is None:
            return Verdict.REACHED if self.phase == "DELETED" else Verdict.GONE
        if ws["phase"] == "ERROR" and ws["error_reason"] and _error(ws) != self.error:
            return Verdict.IN_ERROR
        if ws["desired_state"] != self.phase:
            return Verdict.OVERTAKEN
        if ws["phase"] == self.phase and ws["operation"] == "NONE":
            return Verdict.REACHED
        return Verdict.WAITING


def _error(ws: Workspace) -> tuple[str | None, str]:
    return ws["error_reason"], ws["phase_changed_at"]
