"""Every metric of codehub, in one table. Labels have few values: never a workspace, a user or a path."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from time import perf_counter

from prometheus_client import Counter, Gauge, Histogram, Info

_CALL = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_OPERATION = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
_STAY = (10, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 86400, 7 * 86400, 30 * 86400)

BUILD = Info("codehub_build", "Which codehub this is.")
BUILD.info({"version": version("codehub")})

OPERATION = Histogram(
    "codehub_operation_seconds",
    "Operations that ended, from claim to end, retries included.",
    ["operation", "outcome"],
    buckets=_OPERATION,
)
ATTEMPT_FAILURES = Counter(
    "codehub_attempt_failures_total", "Failed attempts at operations, by reason.", ["operation", "reason"]
)
TIME_IN_PHASE = Histogram(
    "codehub_phase_seconds", "How long workspaces had been in the phase that they left.", ["phase"], buckets=_STAY
)
RECONCILING = Histogram("codehub_reconcile_seconds", "One reconcile: load, observe, judge, save.", buckets=_CALL)
RECONCILE_CONFLICTS = Counter("codehub_reconcile_conflicts_total", "Reconciles whose row had moved on when they saved.")
WAKE_LATENCY = Histogram(
    "codehub_wake_seconds", "From a change of desired_state to the claim of its operation.", buckets=_CALL
)
TRANSFERRED = Counter("codehub_transfer_bytes_total", "Bytes of homes moved, uncompressed.", ["operation"])
TRANSFER = Histogram("codehub_transfer_seconds", "Transfers of homes.", ["operation"], buckets=_OPERATION)

LEADER = Gauge("codehub_leader", "1 where this process holds the lock.", ["lock"])
LEADERSHIPS = Counter("codehub_leaderships_total", "How often this process took the lock.", ["lock"])
SWEEP = Histogram("codehub_observer_sweep_seconds", "One look of the observer at everything.", buckets=_CALL)
DRIFT = Counter("codehub_observer_woken_total", "Workspaces that the observer had to wake.", ["source"])
WAKES_RESCUED = Counter("codehub_wakes_rescued_total", "Wakes that their sender lost and the listener sent.")
WORKFLOWS_MISSING = Counter("codehub_workflows_missing_total", "Workspaces without a workflow that the census found.")
SKIPPED = Counter("codehub_skipped_total", "Rounds of a loop that could not do their work, by loop.", ["loop"])

TTL_EXPIRIES = Counter("codehub_ttl_expiries_total", "Workspaces that TTL moved on.", ["to"])
TTL_TICK = Gauge("codehub_ttl_tick_timestamp_seconds", "When this process last ran the TTL runner.")
TTL_SKIPPED = Counter("codehub_ttl_standby_skipped_total", "TTL ticks that knew nothing of activity: Redis was away.")
GC_DELETED = Counter("codehub_gc_deleted_total", "Objects that GC deleted.")
GC_DELETED_BYTES = Counter("codehub_gc_deleted_bytes_total", "Bytes that GC freed.")
GC_REFUSED = Counter("codehub_gc_refused_total", "Objects that the store would not delete, each time GC tried.")
GC_UPLOADS = Counter("codehub_gc_aborted_uploads_total", "Unfinished uploads that GC removed.")

HTTP = Histogram(
    "codehub_http_request_seconds",
    "Requests to the API, live events excepted.",
    ["method", "route", "status"],
    buckets=(0.01, 0.05, 0.1, 0.5, 1, 5),
)
LOGIN_FAILURES = Counter("codehub_login_failures_total", "Logins that were refused.")
SSE_CLIENTS = Gauge("codehub_sse_clients", "Connected live-event clients.")
PROXY_REQUESTS = Counter(
    "codehub_proxy_requests_total",
    "Requests to workspaces: passed on, turned into a WebSocket, answered by codehub itself, broken off, unreachable.",
    ["result"],
)
PROXY_WEBSOCKETS = Gauge("codehub_proxy_websockets", "Open WebSockets to workspaces.")


@contextmanager
def timed(histogram: Histogram) -> Iterator[None]:
    """Only what succeeds is timed: how long a failure takes says how patient the caller was."""
    began = perf_counter()
    yield
    histogram.observe(perf_counter() - began)


def shown_by(gauge: Gauge, value: Callable[[], float]) -> None:
    """Asked for when somebody looks, so that it costs nothing until then."""
    gauge.set_function(value)
