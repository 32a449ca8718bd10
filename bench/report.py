"""docs/performance.md: the last table with its date and machine, between two marks that its prose stays outside of."""

import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench.growth import Growth
from bench.row import Row

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"


@dataclass(frozen=True)
class Report:
    rows: Sequence[Row]
    growth: Growth
    seconds: float
    command: str

    def write(self, path: Path) -> None:
        pictures = self.growth.draw(path.parent / "images")
        text = path.read_text() if path.exists() else f"# Performance\n\n{BEGIN}\n{END}\n"
        before, _, rest = text.partition(BEGIN)
        _, _, after = rest.partition(END)
        path.write_text(f"{before}{BEGIN}\n{self._body(pictures, path.parent)}{END}{after}")

    def _body(self, pictures: Sequence[Path], folder: Path) -> str:
        machine = f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}"
        lines = [f"{datetime.now(UTC):%Y-%m-%d}, {machine}, `{self.command}` in {self.seconds:.0f} s.\n"]
        lines += ["| what | ours | spread | floor | ratio | goal | met | note |", "|---|---|---|---|---|---|---|---|"]
        lines += [_line(row) for row in self.rows]
        if self.growth.curves:
            sizes = sorted({size for points in self.growth.curves.values() for size in points})
            lines += ["", "## Growth", "", f"| cost | {' | '.join(f'{size:,}' for size in sizes)} |"]
            lines += ["|---" * (len(sizes) + 1) + "|"]
            for what, points in self.growth.curves.items():
                cells = [f"{points[size]:.3g}" if size in points else "" for size in sizes]
                lines.append(f"| {what} | {' | '.join(cells)} |")
            lines += ["", *(f"![{picture.stem}]({picture.relative_to(folder)})" for picture in pictures)]
        return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    floor = f"{statistics.median(row.floor):.3g} {row.unit}" if row.floor else ""
    ratio = f"{row.ratio:.2f} ×" if row.ratio is not None else ""
    met = {True: "yes", False: "**no**", None: ""}[row.met]
    cells = (row.name, f"{row.value:.3g} {row.unit}", row.spread(), floor, ratio, row.aim, met, row.note)
    return f"| {' | '.join(cells)} |"
