"""How costs grow with the number of workspaces: points, and their picture for docs/performance.md."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pygal
from pygal.style import Style

_STYLE = Style(background="#ffffff", plot_background="#ffffff", font_family="sans-serif", colors=("#2563eb",))


@dataclass
class Growth:
    _curves: dict[str, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))

    def add(self, what: str, size: int, value: float) -> None:
        self._curves[what][size] = value

    @property
    def curves(self) -> Mapping[str, Mapping[int, float]]:
        return self._curves

    def draw(self, folder: Path) -> list[Path]:
        """One picture a curve; both axes logarithmic, so that a straight line of slope 1 is linear growth."""
        folder.mkdir(parents=True, exist_ok=True)
        return [_draw(folder, what, points) for what, points in self._curves.items()]


def _draw(folder: Path, what: str, points: Mapping[int, float]) -> Path:
    chart = pygal.XY(
        title=what,
        x_title="workspaces",
        style=_STYLE,
        show_legend=False,
        logarithmic=True,
        xrange=(min(points), max(points)),
        width=480,
        height=320,
        js=[],
    )
    chart.add(what, [(size, max(value, 1e-3)) for size, value in sorted(points.items())])
    name = "".join(letter if letter.isalnum() else "-" for letter in what.lower()).strip("-")
    path = folder / f"growth-{'-'.join(part for part in name.split('-') if part)}.svg"
    path.write_bytes(chart.render())
    return path
