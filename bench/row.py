"""One measured thing, and the table of them."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from rich.console import Console
from rich.table import Table

HEADINGS = ("what", "ours", "spread", "floor", "ratio", "goal", "met", "note")
NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Row:
    name: str
    ours: list[float]
    """One of each round."""
    floor: list[float] = field(default_factory=list)
    """Of the same rounds."""
    goal: float | None = None
    """The most that the ratio (or, without a floor, the value) may be."""
    unit: str = "s"
    note: str = ""
    at_least: bool = False
    """More is better: `goal` is the least."""
    missing: str = ""
    """Why it could not be measured."""

    @classmethod
    def unmeasured(cls, name: str, why: str) -> "Row":
        return cls(name, [], missing=why)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "Row":
        return cls(**{one.name: body[one.name] for one in fields(cls)})

    def as_json(self) -> dict[str, Any]:
        told = {"value": self.value, "ratio": self.ratio, "met": self.met} if not self.missing else {}
        samples = {
            name: [float(f"{one:.5g}") for one in taken] for name, taken in (("ours", self.ours), ("floor", self.floor))
        }
        return asdict(self) | samples | told

    @property
    def value(self) -> float:
        return statistics.median(self.ours)

    @property
    def ratio(self) -> float | None:
        return self.value / statistics.median(self.floor) if self.floor else None

    @property
    def met(self) -> bool | None:
        """None where there is no goal."""
        if self.goal is None or self.missing:
            return None
        reached = self.ratio if self.ratio is not None else self.value
        return reached >= self.goal if self.at_least else reached <= self.goal

    @property
    def aim(self) -> str:
        if self.goal is None:
            return ""
        return f"{'≥' if self.at_least else '≤'} {figure(self.goal)}{' ×' if self.floor else ' ' + self.unit}"

    def cells(self) -> tuple[str, ...]:
        """Under HEADINGS."""
        if self.missing:
            return (self.name, NOT_MEASURED, "", "", "", self.aim, "", self.missing)
        floor = f"{figure(statistics.median(self.floor))} {self.unit}" if self.floor else ""
        if around := _spread(self.floor):
            floor += f" ({around})"
        ratio = f"{self.ratio:.2f} ×" if self.ratio is not None else ""
        met = {True: "yes", False: "**no**", None: ""}[self.met]
        ours = f"{figure(self.value)} {self.unit}"
        return (self.name, ours, _spread(self.ours), floor, ratio, self.aim, met, self.note)


def figure(value: float) -> str:
    """Three digits that count, and no powers of ten."""
    rounded = float(f"{value:.3g}")
    return f"{value:,.0f}" if abs(rounded) >= 1000 else f"{rounded:.9f}".rstrip("0").rstrip(".")


def show(rows: Sequence[Row]) -> None:
    table = Table(*HEADINGS)
    for row in rows:
        table.add_row(*(cell.replace("**", "") for cell in row.cells()))
    Console(width=180).print(table)


def quantile(taken: Sequence[float], percent: int) -> float:
    """Of what was seen, never beyond it."""
    return statistics.quantiles(taken, n=100, method="inclusive")[percent - 1]


def _spread(taken: Sequence[float]) -> str:
    """Nothing is said of a single one."""
    return f"{figure(min(taken))}–{figure(max(taken))}" if len(taken) > 1 else ""
