"""How a command fails: one line for a person, one code for a script."""

from enum import IntEnum
from typing import Any


class Exit(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    LIMIT = 5
    NOT_LOGGED_IN = 6
    UNREACHABLE = 7
    IN_ERROR = 8
    TIMED_OUT = 9
    INTERRUPTED = 130


class CommandFailed(Exception):
    """The message says what happened and what to do."""

    def __init__(self, message: str, exit_code: Exit = Exit.FAILED, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
        self.code = code or exit_code.name.lower()
        """For programs, as in the API's errors."""
        self.as_json = False

    @property
    def body(self) -> dict[str, Any]:
        """In the shape of the API's own errors."""
        return {"error": {"code": self.code, "message": self.message}}


EXIT_CODES = """\b
Exit codes:
  0  done
  1  failed for another reason
  2  wrong usage, or a value that the server refuses
  3  there is no such workspace
  4  conflict: an operation is running, it is in ERROR, or the name is taken
  5  a limit is reached
  6  not logged in
  7  the server can't be reached, or can't answer now
  8  --wait: the workspace ended in ERROR
  9  --wait: the time is over; the operation goes on
  130  Ctrl-C; the operation goes on
"""
