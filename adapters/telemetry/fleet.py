"""The fleet as gauges. Only the leader shows them, so that they are there once; read when somebody looks, at most
every `max_age` seconds, so that nobody pays for numbers that nobody reads."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic

from prometheus_client import generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from adapters.postgres.database import Database
from adapters.postgres.fleet import Fleet, read_fleet
from domain.model import ErrorReason, Operation, Phase

_PHASES = [phase.value for phase in Phase if phase is not Phase.DELETED]
_OPERATIONS = [operation.value for operation in Operation if operation is not Operation.NONE]


@dataclass(slots=True)
class FleetMetrics:
    database: Database
    is_leader: Callable[[], bool]
    max_age: float = 15.0
    _fleet: Fleet | None = field(default=None, init=False)
    _read_at: float = field(default=0.0, init=False)

    async def render(self) -> bytes:
        if not self.is_leader():
            self._fleet = None
            return b""
        if self._fleet is None or monotonic() - self._read_at > self.max_age:
            self._fleet = await read_fleet(self.database)
            self._read_at = monotonic()
        return generate_latest(FleetCollector(self._fleet))


@dataclass(slots=True)
class FleetCollector(Collector):
    fleet: Fleet = field(default_factory=Fleet)

    def collect(self) -> Iterable[Metric]:
        fleet = self.fleet
        yield _by("codehub_workspaces", "Workspaces that are not deleted.", "phase", _PHASES, fleet.phases)
        yield _by("codehub_operations_in_flight", "Operations under way.", "operation", _OPERATIONS, fleet.operations)
        yield _by(
            "codehub_oldest_operation_seconds",
            "Age of the oldest operation under way.",
            "operation",
            _OPERATIONS,
            fleet.oldest_operation,
        )
        reasons = [reason.value for reason in ErrorReason]
        yield _by("codehub_workspaces_in_error", "Workspaces that wait for a person.", "reason", reasons, fleet.errors)
        yield GaugeMetricFamily(
            "codehub_longest_wait_seconds",
            "For how long a workspace has not been where it is wanted, with nobody on the way.",
            value=fleet.longest_wait,
        )
        states = ["serving", "cordoned"]
        yield _by("codehub_nodes", "Docker hosts that are not removed.", "state", states, fleet.nodes)
        yield GaugeMetricFamily(
            "codehub_longest_silence_seconds",
            "Since when the node that was silent for longest was not heard of.",
            value=fleet.longest_silence,
        )
        finished = fleet.gc_finished_at.timestamp() if fleet.gc_finished_at else 0.0
        yield GaugeMetricFamily(
            "codehub_gc_finished_timestamp_seconds",
            "When GC last finished; before its first run, when the database was set up.",
            value=finished,
        )
        yield GaugeMetricFamily("codehub_gc_held", "1 while GC deletes nothing.", value=float(fleet.gc_held))
        yield GaugeMetricFamily("codehub_gc_orphans", "Objects that wait to be deleted.", value=fleet.gc_orphans)
        yield GaugeMetricFamily("codehub_gc_orphan_bytes", "Their size.", value=fleet.gc_orphan_bytes)


def _by(name: str, text: str, label: str, known: list[str], values: Mapping[str, float]) -> Metric:
    """A series for each known value, also where it is zero: what vanishes can't be compared."""
    family = GaugeMetricFamily(name, text, labels=[label])
    for value in dict.fromkeys([*known, *values]):
        family.add_metric([value], values.get(value, 0))
    return family
