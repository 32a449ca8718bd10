"""Traces, off unless a collector is named: then every call below costs one comparison.

Spans carry names, ids and SQL texts, never parameters, bodies or headers: those may be secrets. Of an error they carry
the class: its message may name files of a home, or the values of a query.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from urllib.parse import urlsplit

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer

_tracer: Tracer | None = None
_NOTHING: AbstractContextManager[Span | None] = nullcontext()
# An end that waits for a collector which is away has to be short.
_EXPORT_SECONDS = 3


def configure_tracing(endpoint: str | None, process: str) -> None:
    """Once, before anything connects. Sampler, headers and names come from OpenTelemetry's own OTEL_* variables; the
    service is `codehub-{process}` unless they name it."""
    global _tracer  # noqa: PLW0603 - one process, one way out for its traces
    if endpoint is None:
        return
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # What is given to `create` beats the environment.
    service = OTELResourceDetector().detect().attributes.get(SERVICE_NAME, f"codehub-{process}")
    provider = TracerProvider(resource=Resource.create({SERVICE_NAME: service}))
    exporter = OTLPSpanExporter(_traces_url(endpoint), timeout=_EXPORT_SECONDS)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    _tracer = provider.get_tracer("codehub")


def span(name: str, kind: SpanKind = SpanKind.INTERNAL, **attributes: str | int) -> AbstractContextManager[Span | None]:
    """Around a piece of work; None inside where tracing is off."""
    if _tracer is None:
        return _NOTHING
    return _telling(_tracer, name, kind, attributes)


def sql_span(sql: str) -> AbstractContextManager[Span | None]:
    if _tracer is None:
        return _NOTHING
    text = sql.strip()
    return span(f"postgresql {text.split(None, 1)[0]}", SpanKind.CLIENT, **{"db.system": "postgresql", "db.text": text})


def call_span(system: str, call: Any) -> AbstractContextManager[Span | None]:
    """Named after the method that the call was made in."""
    if _tracer is None:
        return _NOTHING
    return span(f"{system} {call.__qualname__.partition('.<locals>')[0]}", SpanKind.CLIENT)


def trace_id() -> str | None:
    """Of the trace under way, as collectors show it."""
    if _tracer is None:
        return None
    found = trace.get_current_span().get_span_context()
    return trace.format_trace_id(found.trace_id) if found.is_valid else None


@contextmanager
def _telling(tracer: Tracer, name: str, kind: SpanKind, attributes: dict[str, str | int]) -> Iterator[Span]:
    with tracer.start_as_current_span(
        name, kind=kind, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as current:
        try:
            yield current
        except Exception as error:
            current.set_status(Status(StatusCode.ERROR, type(error).__name__))
            raise


def _traces_url(endpoint: str) -> str:
    """As OpenTelemetry says: signals have paths of their own below the endpoint."""
    return endpoint if urlsplit(endpoint).path.endswith("/v1/traces") else f"{endpoint.rstrip('/')}/v1/traces"
