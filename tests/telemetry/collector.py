"""A collector of traces: takes OTLP over HTTP, as a real one does, and keeps the spans."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass(frozen=True)
class Seen:
    resource: dict[str, str]
    name: str
    trace: bytes
    id: bytes
    parent: bytes
    attributes: dict[str, str]

    @property
    def service(self) -> str:
        return self.resource.get("service.name", "")


@dataclass
class Collected:
    url: str
    spans: list[Seen] = field(default_factory=list)

    def traces_with(self, name: str) -> set[bytes]:
        return {span.trace for span in self.spans if span.name == name}

    def of(self, trace: bytes) -> list[Seen]:
        return [span for span in self.spans if span.trace == trace]


@contextmanager
def collecting() -> Iterator[Collected]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collected.spans.extend(_spans(ExportTraceServiceRequest.FromString(body)))
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collected = Collected(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield collected
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _spans(request: ExportTraceServiceRequest) -> Iterator[Seen]:
    for resource in request.resource_spans:
        attributes = {one.key: one.value.string_value for one in resource.resource.attributes}
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Seen(
                    attributes,
                    span.name,
                    span.trace_id,
                    span.span_id,
                    span.parent_span_id,
                    {one.key: one.value.string_value for one in span.attributes},
                )
