"""What a span says of the work that failed in it."""

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from adapters.telemetry import tracing
from domain.errors import ActionFailed


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_tracer", provider.get_tracer("test"))
    yield exporter
    provider.shutdown()


def test_an_error_is_told_by_its_class_alone(told: InMemorySpanExporter) -> None:
    """A path of a home, the last words of a container, the values that a query was made with: none of it leaves."""
    spans = (tracing.span("a call"), tracing.sql_span("SELECT 1"), tracing.call_span("docker", len))
    for one in spans:
        with pytest.raises(ActionFailed), one:
            raise ActionFailed("tar: /secret/path: changed") from ValueError("secret value")
    finished = told.get_finished_spans()
    assert len(finished) == len(spans)
    for span in finished:
        assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "ActionFailed")
        assert "secret" not in span.to_json()


def test_work_that_succeeds_has_no_error(told: InMemorySpanExporter) -> None:
    with tracing.span("a call") as current:
        assert current is not None
    (span,) = told.get_finished_spans()
    assert span.status.status_code is StatusCode.UNSET
