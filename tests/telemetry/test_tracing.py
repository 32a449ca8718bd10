"""Under which name a process sends its traces."""

import os
import subprocess
import sys

import pytest

from tests.telemetry.collector import collecting

TRACES = """
import sys
from adapters.telemetry.tracing import configure_tracing, span

configure_tracing(sys.argv[1], "api")
with span("a piece of work"):
    pass
"""


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, {"service.name": "codehub-api"}),
        ({"OTEL_SERVICE_NAME": "hub-berlin"}, {"service.name": "hub-berlin"}),
        (
            {"OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=staging"},
            {"service.name": "codehub-api", "deployment.environment": "staging"},
        ),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=hub"}, {"service.name": "hub"}),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=hub", "OTEL_SERVICE_NAME": "other"}, {"service.name": "other"}),
    ],
)
def test_the_environment_names_the_service(variables: dict[str, str], expected: dict[str, str]) -> None:
    """OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES count as OpenTelemetry says; without them the process does."""
    with collecting() as collected:
        environment = {"PATH": os.environ["PATH"], **variables}
        subprocess.run([sys.executable, "-c", TRACES, collected.url], env=environment, check=True, timeout=60)
        (seen,) = collected.spans
    assert seen.name == "a piece of work"
    assert expected.items() <= seen.resource.items()
