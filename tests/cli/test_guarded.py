"""Errors that a person can do something about are one line, not a traceback."""

import pytest

from adapters.postgres.database import DatabaseRefused, DatabaseUnavailable
from adapters.postgres.migrate import MigrationError
from domain.errors import Unreachable
from starter.commands.failure import CommandFailed
from starter.commands.guarded import guarded
from starter.embedded.errors import EmbeddedError
from workflows.namespace import NamespaceNotReady


@pytest.mark.parametrize(
    "kind", [DatabaseRefused, DatabaseUnavailable, MigrationError, Unreachable, EmbeddedError, NamespaceNotReady]
)
def test_known_errors_are_one_line(kind: type[Exception]) -> None:
    with pytest.raises(CommandFailed, match="what is wrong"), guarded({}):
        raise kind("what is wrong")


def test_a_bad_setting_is_told_before_anything_begins() -> None:
    with pytest.raises(CommandFailed, match=r"GC_DELAY='soon' is not right"), guarded({"GC_DELAY": "soon"}):
        pytest.fail("it began")


def test_what_nobody_foresaw_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError), guarded({}):
        raise ZeroDivisionError
