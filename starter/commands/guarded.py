"""Settings for a command that works on the services themselves, and its errors as one line."""

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from starter.commands.failure import CommandFailed
from starter.commands.running_stack import fill
from starter.commands.screen import note

if TYPE_CHECKING:
    from settings import Settings


@contextmanager
def guarded(environment: Mapping[str, str] = os.environ) -> "Iterator[Settings]":
    """Errors that a person can do something about come without a traceback."""
    from adapters.postgres.database import DatabaseRefused, DatabaseUnavailable
    from adapters.postgres.migrate import MigrationError
    from domain.errors import WorkspaceError
    from settings import SettingsError, load_settings
    from starter.embedded.errors import EmbeddedError
    from workflows.namespace import NamespaceNotReady

    try:
        yield load_settings(environment)
    except (
        SettingsError,
        EmbeddedError,
        MigrationError,
        DatabaseUnavailable,
        DatabaseRefused,
        NamespaceNotReady,
        WorkspaceError,
    ) as error:
        raise CommandFailed(str(error)) from error


def only_warnings(level: int = logging.WARNING) -> None:
    """On standard error: the result says what else there is to say, and standard output is for the result."""
    import structlog

    logging.basicConfig(level=level, format="%(levelname)s %(message)s", force=True)
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


@contextmanager
def operating(*, as_json: bool = False, on_services: bool = True) -> "Iterator[Settings]":
    """As `guarded`; what is not set is that of the `codehub up` that runs in CODEHUB_DATA. Where that is down, nothing
    can be done `on_services`, and one line says so."""
    only_warnings()
    filled = fill(os.environ)
    if filled.told:
        note(filled.told)
    if filled.down and on_services:
        failed = CommandFailed(filled.down)
        failed.as_json = as_json
        raise failed
    try:
        with guarded(filled.environment) as settings:
            yield settings
    except CommandFailed as error:
        error.as_json = as_json
        raise
