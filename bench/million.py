"""A million workspaces on a Monday morning: how long people wait, by how much there is of each part.

`python -m bench.million`. Arithmetic gives the averages; a queue with a rush needs a simulation. What each stage takes
is measured by `make bench` and read from there; every figure can be given instead. First come, first served:

1. admission: the limits are counted one at a time, in the one PostgreSQL of the installation;
2. for those that were archived: placed (one at a time, too), restored on their node, all through one object store;
3. the transition: Temporal with its workers, which there can be more of;
4. the container's start on the node of its home.

Beside it, what `make bench` found at several sizes is drawn out to all of them.
"""

import argparse
import itertools
import random
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.figures import MEASURED, Figure, Unknown, figures, last
from bench.growth import Curve, merged
from bench.report import put_between, table
from bench.row import figure
from bench.stage import Stage

PLANS = ((1, 100), (4, 100), (4, 1000), (16, 1000))
"""Temporal with workers, so many times what was measured; and nodes."""
SPREADS = (1800.0, 300.0, 0.0)
"""Standard deviations of when people come, in seconds."""
ARCHIVED = (0.0, 1.0)
"""The share of them that has to be restored first: with an archive TTL of weeks nobody's, with the advised one of a day
everybody's, after a weekend."""
ASSUMED: Mapping[str, Figure] = {
    "workspaces": Figure(1_000_000, "", "assumed"),
    "waking": Figure(0.15, "of them wake", "assumed"),
    "home_mb": Figure(500, "MB a home", "assumed"),
    "store_rate": Figure(1250, "MB/s of the object store", "assumed: 10 Gbit/s"),
}


@dataclass(frozen=True)
class Morning:
    workspaces: float
    waking: float
    """The share that is woken in the rush."""
    home_mb: float
    store_rate: float
    """MB/s of the object store, for all nodes together."""
    admission_ms: float
    placement_ms: float
    transition_rate: float
    transition_ms: float
    start_rate: float
    start_seconds: float
    restore_rate: float
    """MB/s of one node."""


@dataclass(frozen=True)
class Wait:
    p50: float
    p99: float
    longest: float
    slowest: str
    """The stage where most of the waiting is done."""


@dataclass
class Person:
    came: float
    at: float
    """When they were done with the last stage."""
    archived: bool
    node: int


def simulate(morning: Morning, pairs: int, nodes: int, spread: float, archived: float, seed: int = 1) -> Wait:
    """`pairs`: how many times the measured Temporal and worker there is. `archived`: the share to be restored."""
    rng = random.Random(seed)
    people = []
    for _ in range(int(morning.workspaces * morning.waking)):
        came = rng.gauss(0.0, spread)
        # A home is on its node: the rush does not spread evenly, some nodes have more of it than others.
        people.append(Person(came, came, rng.random() < archived, rng.randrange(nodes)))
    restoring = [person for person in people if person.archived]
    transition = Stage(1 / (morning.transition_rate * pairs), morning.transition_ms / 1000)
    waits: dict[str, float] = {}

    def pass_through(name: str, crowd: Sequence[Person], stage: Stage) -> None:
        waits[name] = waits.get(name, 0.0) + _passed(crowd, stage)

    pass_through("admission", people, Stage(morning.admission_ms / 1000))
    pass_through("placement", restoring, Stage(morning.placement_ms / 1000))
    pass_through("transition", restoring, transition)
    pass_through("object store", restoring, Stage(morning.home_mb / morning.store_rate))
    for crowd in _by_node(restoring, nodes):
        pass_through("restore", crowd, Stage(morning.home_mb / morning.restore_rate))
    pass_through("transition", people, transition)
    for crowd in _by_node(people, nodes):
        pass_through("start", crowd, Stage(1 / morning.start_rate, morning.start_seconds))
    taken = [person.at - person.came for person in people]
    cuts = statistics.quantiles(taken, n=100, method="inclusive")
    return Wait(cuts[49], cuts[98], max(taken), max(waits, key=lambda name: waits[name]))


def _passed(crowd: Sequence[Person], stage: Stage) -> float:
    """All of them, in the order in which they come; how long they spent there together."""
    in_turn = sorted(crowd, key=lambda person: person.at)
    spent = 0.0
    for person, done in zip(in_turn, stage.served([person.at for person in in_turn]), strict=True):
        spent += done - person.at
        person.at = done
    return spent


def _by_node(people: Iterable[Person], nodes: int) -> list[list[Person]]:
    found: list[list[Person]] = [[] for _ in range(nodes)]
    for person in people:
        found[person.node].append(person)
    return found


@dataclass(frozen=True)
class Sheet:
    """A table, for the screen or for a document."""

    headings: tuple[str, ...]
    lines: Sequence[tuple[str, ...]]

    def show(self, console: Console) -> None:
        shown = Table(*self.headings)
        for line in self.lines:
            shown.add_row(*line)
        console.print(shown)

    def __str__(self) -> str:
        return "\n".join(table(self.headings, self.lines))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.million", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--docs", type=Path, help="also write the tables there, e.g. docs/scale.md")
    for name, known in MEASURED.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, help=f"{known.what}, {known.unit}; as measured")
    for name, assumed in ASSUMED.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, help=f"{assumed.value:g} {assumed.unit}")
    given = vars(parser.parse_args())
    docs: Path | None = given.pop("docs")
    try:
        used = figures(given)
    except Unknown as unknown:
        print(unknown, file=sys.stderr)
        return 1
    for name, assumed in ASSUMED.items():
        value = given[name]
        used[name] = assumed if value is None else Figure(value, assumed.unit, "given")
    morning = Morning(**{name: one.value for name, one in used.items()})
    curves = merged(part.growth for part in last().values())
    sheets = [_drawn_out(curves, int(morning.workspaces)), _figures(used), Sheet(WAITS, list(_waits(morning)))]
    console = Console(width=140)
    for sheet in sheets:
        sheet.show(console)
    if docs:
        put_between(docs, "\n\n".join(map(str, sheets)) + "\n")
    return 0


def _drawn_out(curves: Mapping[str, Curve], size: int) -> Sheet:
    headings = ("cost", "measured", "with", "exponent", f"with {size:,}")
    lines = []
    for what, curve in curves.items():
        most = max(curve.points)
        unit = f"{curve.unit}{' each' if curve.each else ''}"
        slope = "" if curve.exponent is None else f"{curve.exponent:.2f}"
        lines.append((f"{what}, {unit}", figure(curve.points[most]), f"{most:,}", slope, figure(curve.at(size))))
    return Sheet(headings, lines)


def _figures(used: Mapping[str, Figure]) -> Sheet:
    return Sheet(("figure", "value", "from"), [(name, str(one), one.source) for name, one in used.items()])


WAITS = ("archived", "rush, σ", "Temporal + worker pairs", "nodes", "p50", "p99", "longest", "waits most at")


def _waits(morning: Morning) -> Iterator[tuple[str, ...]]:
    for archived, spread, (pairs, nodes) in itertools.product(ARCHIVED, SPREADS, PLANS):
        wait = simulate(morning, pairs, nodes, spread, archived)
        when = f"{spread / 60:.0f} min" if spread else "all at once"
        times = [_told(seconds) for seconds in (wait.p50, wait.p99, wait.longest)]
        yield f"{archived:.0%}", when, str(pairs), str(nodes), *times, wait.slowest


def _told(seconds: float) -> str:
    return f"{seconds:,.1f} s" if seconds < 600 else f"{seconds / 60:,.0f} min"


if __name__ == "__main__":
    sys.exit(main())
