"""What the settings say of a worker reaches Temporal's (issue 2)."""

from dataclasses import replace
from datetime import timedelta
from typing import Self

import pytest
from temporalio.client import Client
from temporalio.worker import Worker, WorkerConfig

from adapters.memory.runtime import MemoryRuntime
from settings import Settings
from starter import polling
from tests.integration.system import system

OPTIONS = {
    "max_concurrent_workflow_tasks": 5,
    "max_concurrent_local_activities": 7,
    "max_concurrent_activities": 7,
    "max_cached_workflows": 11,
    "sticky_queue_schedule_to_start_timeout": timedelta(seconds=1.5),
    "graceful_shutdown_timeout": timedelta(seconds=0.5),
}
SETTINGS = Settings(
    worker_max_concurrent_workflow_tasks=5,
    worker_max_concurrent_activities=7,
    worker_max_cached_workflows=11,
    worker_sticky_timeout=1.5,
    worker_drain_seconds=0.5,
)


async def test_slots_cache_and_timeouts_are_those_of_the_settings(
    temporal_client: Client, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On every queue that it polls; TTL and GC have few places of their own."""
    made: dict[str, WorkerConfig] = {}

    class Noted(Worker):
        async def __aenter__(self) -> Self:
            made[self.task_queue] = self.config()
            await super().__aenter__()
            return self

    monkeypatch.setattr(polling, "Worker", Noted)
    async with (
        system(temporal_client, database_url, MemoryRuntime(), "image", settings=SETTINGS) as running,
        polling.polling(replace(running.parts, node="other", task_queue="another")),
    ):
        pass
    workflows, elsewhere, node = made["codehub"], made["another"], made["node-other"]
    assert _chosen(workflows) == _chosen(elsewhere) == OPTIONS
    common = ("max_concurrent_activities", "graceful_shutdown_timeout")
    assert {name: _chosen(node)[name] for name in common} == {name: OPTIONS[name] for name in common}


def _chosen(config: WorkerConfig) -> dict[str, object]:
    return {name: value for name, value in config.items() if name in OPTIONS}
