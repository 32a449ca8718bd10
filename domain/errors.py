"""Errors of operations (SPEC 6). Each knows its error_reason; the reason knows whether it is terminal.

WorkspaceError
├── ActionFailed             an actuator call failed                     after retries
│   ├── VolumeInUse          … because a container holds the volume
│   └── Unrestorable         … because no archive could give it back      at once
├── Unreachable              Docker, S3 or node not reachable            after retries
├── OperationTimeout         the whole operation took too long           at once
├── DataLost                 data that can't be recovered                at once
├── ImagePullFailed          image can't be had                          at once
├── ContainerWithoutVolume   contract 6 broken                           at once
└── ArchiveCorrupted         checksum mismatch                           at once

An exception outside this tree is a failure of no known class: RetryExceeded once its attempts are used up.
"""

from typing import ClassVar

from domain.model import ErrorReason

MAX_RETRIES = 3
TERMINAL_REASONS = frozenset(
    {
        ErrorReason.TIMEOUT,
        ErrorReason.DATA_LOST,
        ErrorReason.IMAGE_PULL_FAILED,
        ErrorReason.CONTAINER_WITHOUT_VOLUME,
        ErrorReason.ARCHIVE_CORRUPTED,
    }
)


class WorkspaceError(Exception):
    """An operation could not do its work; the message says what happened.

    `words` is the part of the message that the workspace itself said, or what its files are called: it is for its
    owner and nobody else.
    """

    reason: ClassVar[ErrorReason]
    lasting: ClassVar[bool] = False
    """No retry would mend it, though others of its reason are tried again."""

    def __init__(self, message: str, words: str = "") -> None:
        super().__init__(message)
        self.words = words


class ActionFailed(WorkspaceError):
    reason = ErrorReason.ACTION_FAILED


class VolumeInUse(ActionFailed):
    """Nothing was removed."""


class Unrestorable(ActionFailed):
    """The home holds what could not be extracted again."""

    lasting = True


class Unreachable(WorkspaceError):
    reason = ErrorReason.UNREACHABLE


class OperationTimeout(WorkspaceError):
    reason = ErrorReason.TIMEOUT


class DataLost(WorkspaceError):
    reason = ErrorReason.DATA_LOST


class ImagePullFailed(WorkspaceError):
    reason = ErrorReason.IMAGE_PULL_FAILED


class ContainerWithoutVolume(WorkspaceError):
    reason = ErrorReason.CONTAINER_WITHOUT_VOLUME


class ArchiveCorrupted(WorkspaceError):
    reason = ErrorReason.ARCHIVE_CORRUPTED


def is_terminal(reason: ErrorReason, error_count: int, max_retries: int = MAX_RETRIES) -> bool:
    """Whether a failure ends the operation: from then on the workspace waits for a person."""
    return reason in TERMINAL_REASONS or error_count >= max_retries


def reason_of(error: BaseException) -> ErrorReason:
    return error.reason if isinstance(error, WorkspaceError) else ErrorReason.RETRY_EXCEEDED


def outline(error: BaseException) -> str:
    """What happened, without the words of a workspace: fit for those who are not its owner. Of an error outside the
    tree only its class, because nobody knows what it says."""
    if not isinstance(error, WorkspaceError):
        return type(error).__name__
    text = str(error)
    inner: BaseException | None = error
    while inner is not None:
        words = getattr(inner, "words", "")
        text = text.replace(words, "…") if words else text
        inner = inner.__cause__ or inner.__context__
    return text
