"""A page of metrics, as Prometheus reads it."""

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

TOKEN = "a token for the metrics"


async def scraped(url: str, token: str | None = TOKEN) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        return answer.status, await answer.text()


def samples(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Of each name, the values by their labels' values."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found
