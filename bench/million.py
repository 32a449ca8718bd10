"""A million workspaces on a Monday morning: how long people wait, by how much there is of each part.

`python -m bench.million`. Arithmetic gives the averages; a queue with a rush needs a simulation. Two stages in line,
each a queue with a number of places: the workflow's transition (Temporal and workers), then the container's start on
one of the nodes. What they take is measured by `make bench` (see docs/performance.md) and given here.
"""

import argparse
import heapq
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Morning:
    workspaces: int = 1_000_000
    waking: float = 0.15
    """The share that is woken in the rush."""
    spread_seconds: float = 1800.0
    """The standard deviation of when."""
    transition_rate: float = 60.0
    """Transitions per second of one Temporal with one worker, two cores together."""
    start_seconds: float = 0.7
    """From the operation's begin to the container's first answer."""
    starts_at_once: int = 8
    """On one node, before they slow each other down."""


@dataclass(frozen=True)
class Wait:
    p50: float
    p99: float
    longest: float


def simulate(morning: Morning, pairs: int, nodes: int, seed: int = 1) -> Wait:
    """`pairs`: how many times the measured Temporal and worker there is. First come, first served, at both stages."""
    rng = random.Random(seed)
    count = int(morning.workspaces * morning.waking)
    arrivals = sorted(rng.gauss(0.0, morning.spread_seconds) for _ in range(count))
    moved = _served(arrivals, [1 / morning.transition_rate] * count, pairs)
    # A home is on its node: the rush does not spread evenly, some nodes have more of it than others.
    by_node: list[list[tuple[float, float]]] = [[] for _ in range(nodes)]
    for arrived, ready in zip(arrivals, moved, strict=True):
        by_node[rng.randrange(nodes)].append((ready, arrived))
    waits: list[float] = []
    for queue in by_node:
        queue.sort()
        started = _served([ready for ready, _ in queue], [morning.start_seconds] * len(queue), morning.starts_at_once)
        waits += [end - arrived for end, (_, arrived) in zip(started, queue, strict=True)]
    cuts = statistics.quantiles(waits, n=100)
    return Wait(cuts[49], cuts[98], max(waits))


def _served(arrivals: Sequence[float], seconds: Sequence[float], places: int) -> list[float]:
    """When each is done."""
    free = [float("-inf")] * places
    done: list[float] = []
    for arrived, taking in zip(arrivals, seconds, strict=True):
        end = max(arrived, heapq.heappop(free)) + taking
        heapq.heappush(free, end)
        done.append(end)
    return done


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.million", description=__doc__)
    parser.add_argument("--transition-rate", type=float, default=Morning.transition_rate)
    parser.add_argument("--start-seconds", type=float, default=Morning.start_seconds)
    parser.add_argument("--starts-at-once", type=int, default=Morning.starts_at_once)
    given = vars(parser.parse_args())
    table = Table("rush, standard deviation", "Temporal + worker pairs", "nodes", "p50", "p99", "longest")
    for spread in (1800.0, 300.0, 0.0):
        morning = Morning(spread_seconds=spread, **given)
        for pairs, nodes in ((1, 100), (4, 100), (4, 1000), (16, 1000)):
            wait = simulate(morning, pairs, nodes)
            times = [f"{value:,.1f} s" for value in (wait.p50, wait.p99, wait.longest)]
            table.add_row(f"{spread / 60:.0f} min" if spread else "all at once", str(pairs), str(nodes), *times)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
