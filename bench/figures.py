"""The figures that a plan goes by, and where each comes from: measured, given on the command line, or assumed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench import admission, archive, scale, storm, transitions
from bench.part import Part
from bench.results import Results
from bench.row import Row, figure
from bench.sizes import PLAIN

PLACES = (Path(".cache/bench.json"), Path("docs/performance.json"))
"""Where measured ones are looked for: the last run here, then the one that is in the docs."""


class Unknown(Exception):
    """A figure that was neither measured nor given."""


@dataclass(frozen=True)
class Figure:
    value: float
    unit: str
    source: str

    def __str__(self) -> str:
        return f"{figure(self.value)} {self.unit}"


@dataclass(frozen=True)
class Measured:
    """How a figure comes out of a row."""

    what: str
    unit: str
    part: str
    row: str
    of: Callable[[Row], float]


_MB = PLAIN.homes[0][0]
_COUNT = PLAIN.at_once
MEASURED: Mapping[str, Measured] = {
    "admission_ms": Measured("a start admitted", "ms", "tables", admission.ADMITTED, lambda row: row.value),
    "placement_ms": Measured("a home placed", "ms", "tables", admission.PLACED, lambda row: row.value),
    "transition_rate": Measured(
        "transitions of one pair", "/s", "scale", storm.RATE.format(count=_COUNT), lambda row: row.value
    ),
    "transition_ms": Measured(
        "one transition alone", "ms", "scale", scale.TRANSITION.format(size=PLAIN.fleet), lambda row: row.value
    ),
    "start_rate": Measured(
        "starts of one node",
        "/s",
        "transitions",
        f"{PLAIN.crowd} {transitions.CROWD}",
        lambda row: PLAIN.crowd / row.value,
    ),
    "start_seconds": Measured("one start alone", "s", "transitions", transitions.START, lambda row: row.value),
    "restore_rate": Measured(
        "restores of one node",
        "MB/s",
        "archive",
        archive.RESTORE.format(home=archive.mixed(_MB)),
        lambda row: _MB / row.value,
    ),
}


def figures(given: Mapping[str, float | None], parts: Mapping[str, Part] | None = None) -> dict[str, Figure]:
    """Each of MEASURED: as given, or else as measured. Raises Unknown."""
    parts = last() if parts is None else parts
    found: dict[str, Figure] = {}
    for name, wanted in MEASURED.items():
        value = given.get(name)
        found[name] = Figure(value, wanted.unit, "given") if value is not None else _measured(name, wanted, parts)
    return found


def _measured(name: str, wanted: Measured, parts: Mapping[str, Part]) -> Figure:
    part = parts.get(wanted.part)
    row = next((row for row in part.rows if row.name == wanted.row and not row.missing), None) if part else None
    if part is None or row is None:
        raise Unknown(
            f"{wanted.what}: not measured here. `python -m bench {wanted.part}` measures it,"
            f" or give it: --{name.replace('_', '-')}"
        )
    return Figure(wanted.of(row), wanted.unit, f"“{row.name}”, {part.date}, commit {part.commit}")


def last() -> dict[str, Part]:
    """The newest of each part."""
    found: dict[str, Part] = {}
    for place in PLACES:
        for name, part in Results(place).load().items():
            if name not in found or part.date > found[name].date:
                found[name] = part
    return found
