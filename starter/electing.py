"""What is done once, however many workers there are: once for the installation, and once for each node."""

from hashlib import sha256
from typing import TYPE_CHECKING

from adapters.postgres.attention import Attention
from adapters.postgres.desired_state import DesiredStates
from adapters.postgres.nodes import Nodes
from adapters.postgres.placements import Placements
from adapters.postgres.tallies import Tallies
from coordinator.bookkeeper import Bookkeeper
from coordinator.census import Census
from coordinator.leader import Leader
from coordinator.listener import EventListener
from coordinator.nodewatch import NodeWatch
from coordinator.observer import Observer
from coordinator.publisher import Publisher
from coordinator.stragglers import Stragglers
from coordinator.waiters import Waiters
from coordinator.wakes import Wakes
from workflows.client import Waker

if TYPE_CHECKING:
    from worker import Parts

NODE_LOCK = "node"
_WATCHES_PER_LOSS = 15


def coordinator(parts: "Parts") -> Leader:
    """The installation's: it needs no engine, so that any worker can lead."""
    settings = parts.settings
    attention = Attention(parts.database)
    waker = Waker(parts.client, parts.task_queue)
    stragglers = Stragglers(attention, waker, interval=settings.coordinator_idle_interval, timeouts=settings.timeouts)
    watch = NodeWatch(
        Nodes(parts.aside or parts.database, settings.node_lost_after),
        DesiredStates(parts.database, settings.limits),
        waker,
        interval=settings.node_lost_seconds / _WATCHES_PER_LOSS,
        at_once=settings.node_drain_at_once,
    )
    return Leader(
        parts.database_url,
        settings.coordinator_node_id,
        {
            "listener": EventListener(parts.database_url, Wakes(attention, waker), Publisher(parts.bus)).run,
            "stragglers": stragglers.run,
            "census": Census(attention, parts.client, waker).run,
            "nodes": watch.run,
            "waiters": Waiters(Placements(parts.database), waker).run,
            "bookkeeper": Bookkeeper(Tallies(parts.database)).run,
        },
        lock_id=settings.coordinator_lock_id,
        retry_interval=settings.coordinator_retry_interval,
    )


def observer(parts: "Parts") -> tuple[Leader, Observer]:
    """The node's: only its own workers reach its engine, and one of them is enough."""
    settings = parts.settings
    observing = Observer(
        parts.node,
        Attention(parts.database),
        parts.runtime,
        Waker(parts.client, parts.task_queue),
        interval=settings.coordinator_idle_interval,
    )
    leader = Leader(
        parts.database_url,
        settings.coordinator_node_id,
        {"events": observing.follow_events, "sweep": observing.sweep_forever},
        lock_id=node_lock_id(parts.node),
        lock_name=f"{NODE_LOCK}:{parts.node}",
        retry_interval=settings.coordinator_retry_interval,
    )
    return leader, observing


def node_lock_id(node: str) -> int:
    """Of PostgreSQL's 64 bits, without the sign."""
    return int.from_bytes(sha256(f"codehub-node-{node}".encode()).digest()[:8]) >> 1
