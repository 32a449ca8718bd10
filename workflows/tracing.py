"""Traces through Temporal. A workspace's workflow lives for years and has no trace of its own: what it does after a
wake belongs to the trace of whoever woke it, so that a request and the operations it caused are one trace."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.contrib.opentelemetry import TracingInterceptor, TracingWorkflowInboundInterceptor
from temporalio.worker import HandleSignalInput, WorkflowInterceptorClassInput

UNASKED = "_tracer-unasked"
_A_MOMENT = timedelta(minutes=1)


def tracing_interceptors() -> list[TracingInterceptor]:
    """None where tracing is off: then it costs nothing."""
    is_on = not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    return [WakeTracing()] if is_on else []


class WakeTracing(TracingInterceptor):
    """Marks what nobody asked for: a wake by the observer or the listener is the beginning of its own trace."""

    def _context_to_headers(self, headers: Mapping[str, Payload]) -> Mapping[str, Payload]:
        told = super()._context_to_headers(headers)
        if getattr(trace.get_current_span(), "parent", None) is None:
            return {**told, UNASKED: self.payload_converter.to_payloads([True])[0]}
        return told

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: A002 - the SDK's name
    ) -> type[TracingWorkflowInboundInterceptor]:
        super().workflow_interceptor_class(input)
        return _FollowsWakes


class _FollowsWakes(TracingWorkflowInboundInterceptor):
    _woken_by: Any = None
    _woken_at: datetime | None = None

    async def handle_signal(self, input: HandleSignalInput) -> None:  # noqa: A002 - the SDK's name
        header = input.headers.get(self.header_key)
        if header is not None and not (UNASKED in input.headers and self._is_under_way()):
            self._woken_at = workflow.now()
            carrier = self.payload_converter.from_payloads([header])[0]
            self._woken_by = self.text_map_propagator.extract(carrier)
        await super().handle_signal(input)

    def _is_under_way(self) -> bool:
        """Somebody asked a moment ago: a wake that only makes sure of it joins that trace."""
        return self._woken_at is not None and workflow.now() - self._woken_at < _A_MOMENT

    def _completed_span(self, *args: Any, **options: Any) -> None:
        with self._in_trace_of_wake():
            super()._completed_span(*args, **options)

    def _context_to_headers(self, headers: Mapping[str, Payload]) -> Mapping[str, Payload]:
        with self._in_trace_of_wake():
            return super()._context_to_headers(headers)

    @contextmanager
    def _in_trace_of_wake(self) -> Iterator[None]:
        if self._woken_by is None:
            yield
            return
        token = otel_context.attach(self._set_on_context(self._woken_by))
        try:
            yield
        finally:
            otel_context.detach(token)
