"""How costs grow with the number of workspaces: points, and the exponent that fits them."""

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

NOISE = 0.15
"""Of an exponent."""
NOISE_FACTOR, STEP_FACTOR = 1.5, 2.0
"""What a cost must have grown by beyond what is allowed, over all sizes and between the two largest: where sizes are
close to each other, a little noise is a steep slope."""
LEAST_POINTS = 2


@dataclass
class Curve:
    unit: str
    each: bool
    """Paid for each workspace, or at each of its transitions: what is paid by all grows with one power more. Else a
    single run over all of them."""
    points: dict[int, float] = field(default_factory=dict)

    @property
    def exponent(self) -> float | None:
        """1: ten times the workspaces cost ten times as much; None where there are too few points."""
        return exponent(self.points)

    @property
    def last_step(self) -> float | None:
        """Between the two largest sizes, where what does not depend on them hides the least of it."""
        return exponent(dict(sorted(self.points.items())[-2:]))

    @property
    def allowed(self) -> float:
        """The exponent of growth that is no more than linear in all."""
        return 0.0 if self.each else 1.0

    def at(self, size: int) -> float:
        """Drawn out to more than was measured: as it grew so far, or as much as is allowed, whichever is more."""
        largest = max(self.points)
        slope = max(self.allowed, self.exponent or 0.0)
        return float(self.points[largest] * (size / largest) ** slope)

    @property
    def superlinear(self) -> bool:
        last = dict(sorted(self.points.items())[-2:])
        return self._exceeds(self.points, NOISE_FACTOR) or self._exceeds(last, STEP_FACTOR)

    def _exceeds(self, points: Mapping[int, float], factor: float) -> bool:
        found = exponent(points)
        if found is None or found <= self.allowed + NOISE:
            return False
        return float((max(points) / min(points)) ** (found - self.allowed)) >= factor


def exponent(points: Mapping[int, float]) -> float | None:
    """The slope of the line that fits best where both axes are logarithmic."""
    known = [(math.log(size), math.log(value)) for size, value in points.items() if size > 0 and value > 0]
    if len(known) < LEAST_POINTS:
        return None
    return statistics.linear_regression(*zip(*known, strict=True)).slope


@dataclass
class Growth:
    curves: dict[str, Curve] = field(default_factory=dict)

    def add(self, what: str, size: int, value: float, unit: str = "ms", *, each: bool = False) -> None:
        self.curves.setdefault(what, Curve(unit, each)).points[size] = value

    def __iter__(self) -> Iterator[tuple[str, Curve]]:
        return iter(self.curves.items())

    def as_json(self) -> dict[str, Any]:
        return {
            what: {
                "unit": curve.unit,
                "each": curve.each,
                "points": curve.points,
                "exponent": curve.exponent,
                "last_step": curve.last_step,
                "superlinear": curve.superlinear,
            }
            for what, curve in self
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "Growth":
        return cls(
            {
                what: Curve(one["unit"], one["each"], {int(size): value for size, value in one["points"].items()})
                for what, one in body.items()
            }
        )


def merged(growths: Iterable[Growth]) -> dict[str, Curve]:
    """By their names: parts that measure the same cost at different sizes make one curve. Of one size, the last."""
    found: dict[str, Curve] = {}
    for growth in growths:
        for what, curve in growth:
            former = found.get(what)
            found[what] = Curve(curve.unit, curve.each, {**(former.points if former else {}), **curve.points})
    return found
