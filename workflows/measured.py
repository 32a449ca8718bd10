"""A Temporal runtime that measures itself: the SDK's own metrics, to be shown with ours."""

import socket
from contextlib import closing
from dataclasses import dataclass

from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig

_TRIES = 5


@dataclass(frozen=True, slots=True)
class MeasuredRuntime:
    """The SDK serves its metrics from its own threads, on loopback; whoever shows them fetches them from `url`."""

    runtime: Runtime
    url: str


def measured_runtime() -> MeasuredRuntime:
    for left in reversed(range(_TRIES)):
        address = f"127.0.0.1:{_free_port()}"
        metrics = PrometheusConfig(address, counters_total_suffix=True, unit_suffix=True, durations_as_seconds=True)
        try:
            runtime = Runtime(telemetry=TelemetryConfig(metrics=metrics))
        except (RuntimeError, ValueError):
            # Somebody else took the port in between.
            if not left:
                raise
        else:
            return MeasuredRuntime(runtime, f"http://{address}/metrics")
    raise AssertionError("the last try returns or raises")


def _free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port: int = server.getsockname()[1]
        return port
