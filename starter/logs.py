"""Structured logs: pretty for a person, JSON for machines."""

import logging
import sys
from collections.abc import Mapping

import structlog

from adapters.telemetry.tracing import trace_id
from settings import Settings, without_effect


def configure_logs(settings: Settings) -> None:
    pretty = settings.log_format == "console" or (settings.log_format == "auto" and sys.stderr.isatty())
    level = logging.getLevelNamesMapping()[settings.log_level]
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        _add_trace,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    rendered: list[structlog.typing.Processor] = (
        # Plain tracebacks: the values of local variables may be secrets.
        [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
        if pretty
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[*shared, *rendered],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    # Libraries log through the standard module; their lines take the same shape.
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder()],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendered],
        )
    )
    logging.basicConfig(handlers=[handler], level=max(level, logging.WARNING), force=True)


def tell_settings_without_effect(environment: Mapping[str, str]) -> None:
    for name, reason in without_effect(environment).items():
        structlog.get_logger().warning("setting_without_effect", setting=name, reason=reason)


def _add_trace(_logger: object, _level: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Where a trace is under way, its lines can be found by it."""
    if found := trace_id():
        event["trace_id"] = found
    return event
