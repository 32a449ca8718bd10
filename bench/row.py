"""One measured thing, and the table of them."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Row:
    name: str
    ours: list[float]
    floor: list[float] = field(default_factory=list)
    goal: float | None = None
    """The most that the ratio (or, without a floor, the value) may be."""
    unit: str = "s"
    note: str = ""
    at_least: bool = False
    """More is better: `goal` is the least."""

    @property
    def value(self) -> float:
        return statistics.median(self.ours)

    @property
    def ratio(self) -> float | None:
        return self.value / statistics.median(self.floor) if self.floor else None

    @property
    def met(self) -> bool | None:
        if self.goal is None:
            return None
        reached = self.ratio if self.ratio is not None else self.value
        return reached >= self.goal if self.at_least else reached <= self.goal

    @property
    def aim(self) -> str:
        if self.goal is None:
            return ""
        return f"{'≥' if self.at_least else '≤'} {self.goal:g}{' ×' if self.floor else ' ' + self.unit}"

    def spread(self) -> str:
        return f"{min(self.ours):.3g}–{max(self.ours):.3g}"


def show(rows: Sequence[Row]) -> None:
    table = Table("what", "ours", "spread", "floor", "ratio", "goal", "", "note")
    for row in rows:
        floor = f"{statistics.median(row.floor):.3g} {row.unit}" if row.floor else ""
        ratio = f"{row.ratio:.2f} ×" if row.ratio is not None else ""
        mark = {True: "✓", False: "✗", None: ""}[row.met]
        table.add_row(row.name, f"{row.value:.3g} {row.unit}", row.spread(), floor, ratio, row.aim, mark, row.note)
    Console(width=160).print(table)


def save(rows: Sequence[Row], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    body = [{**asdict(row), "value": row.value, "ratio": row.ratio, "met": row.met} for row in rows]
    path.write_text(json.dumps(body, indent=1) + "\n")
