"""What an API process shows of itself, without a worker and without an engine."""

import aiohttp
from temporalio.client import Client

from tests.ports import free_port
from tests.processes.conftest import Launch
from tests.processes.process import until
from tests.telemetry.exposed import TOKEN, samples, scraped


async def test_the_apis_page_has_the_metrics_of_temporals_sdk(
    launch: Launch, database_url: str, temporal_client: Client
) -> None:
    """At its own address and at METRICS_PORT: what it asked Temporal for is counted there, with ours, on one page that
    Prometheus can read."""
    port, other = free_port(), free_port()
    api = launch(
        "api",
        {
            "DATABASE_URL": database_url,
            "TEMPORAL_ADDRESS": temporal_client.service_client.config.target_host,
            "TEMPORAL_NAMESPACE": temporal_client.namespace,
            "CODEHUB_PORT": str(port),
            "METRICS_PORT": str(other),
            "METRICS_TOKEN": TOKEN,
        },
    )
    await api.said("api_listening")

    async def is_ready() -> bool:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/health/ready") as answer,
        ):
            return answer.status == 200

    # Asks Temporal, which it has not done before.
    await until(is_ready, 60, "it is not ready")
    for url in (f"http://127.0.0.1:{port}/metrics", f"http://127.0.0.1:{other}/metrics"):
        status, text = await scraped(url)
        assert status == 200
        shown = samples(text)
        assert sum(shown["temporal_request_total"].values()) >= 1
        assert sum(shown["temporal_request_latency_seconds_count"].values()) >= 1
        assert "codehub_http_request_seconds_count" in shown
