"""The error tree of SPEC 6, and the names of SPEC 2."""

import pytest

from domain.errors import MAX_RETRIES, ActionFailed, ArchiveCorrupted, WorkspaceError, is_terminal, outline, reason_of
from domain.model import ErrorReason, OperationId, WorkspaceId
from domain.naming import archive_key, container_name, meta_key, node_queue, volume_name, workflow_id

AT_ONCE = {
    ErrorReason.TIMEOUT,
    ErrorReason.DATA_LOST,
    ErrorReason.IMAGE_PULL_FAILED,
    ErrorReason.CONTAINER_WITHOUT_VOLUME,
    ErrorReason.ARCHIVE_CORRUPTED,
}


@pytest.mark.parametrize("reason", ErrorReason)
def test_terminal_at_once_or_after_the_retries(reason: ErrorReason) -> None:
    """Some reasons no retry can mend; every other one ends with the third failure."""
    assert [is_terminal(reason, count) for count in range(5)] == [
        reason in AT_ONCE or count >= MAX_RETRIES for count in range(5)
    ]
    assert is_terminal(reason, 1, max_retries=1)


def test_every_reason_has_one_error() -> None:
    """The tree covers all reasons but RetryExceeded, which stands for failures of no known class."""
    reasons = [error.reason for error in WorkspaceError.__subclasses__()]
    assert sorted(reasons) == sorted(set(ErrorReason) - {ErrorReason.RETRY_EXCEEDED})


def test_an_unknown_failure_is_retry_exceeded() -> None:
    """A known class keeps its own reason."""
    assert reason_of(ValueError("?")) is ErrorReason.RETRY_EXCEEDED
    for error in WorkspaceError.__subclasses__():
        assert reason_of(error("no")) is error.reason


def test_an_outline_leaves_out_what_is_the_workspaces() -> None:
    """What its container said and what its files are called, however often the error was wrapped on its way."""
    failed = ActionFailed("it ended with 1; it said last: my token is x", words="my token is x")
    assert (str(failed), outline(failed)) == (
        "it ended with 1; it said last: my token is x",
        "it ended with 1; it said last: …",
    )
    wrapped = ArchiveCorrupted(f"not what was stored ({failed})")
    wrapped.__cause__ = failed
    assert outline(wrapped) == "not what was stored (it ended with 1; it said last: …)"
    assert outline(ActionFailed("busy")) == "busy"


def test_of_an_unknown_failure_only_its_class_is_told() -> None:
    """Nobody knows what it says."""
    assert outline(FileNotFoundError("/home/coder/my token is x")) == "FileNotFoundError"


def test_names_are_those_of_the_specification() -> None:
    """Renaming any of these would lose what exists under the old name."""
    ws = WorkspaceId("6f1c")
    key = archive_key(ws, OperationId("a1"))
    assert (container_name(ws), volume_name(ws), workflow_id(ws)) == ("ws-6f1c", "ws-6f1c-home", "ws-6f1c")
    assert (key, meta_key(key)) == ("6f1c/a1/home.tar.zst", "6f1c/a1/home.tar.zst.meta")
    assert node_queue("n1") == "node-n1"
