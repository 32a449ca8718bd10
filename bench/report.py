"""docs/performance.md: the last tables with their dates and machine, between two marks that its prose stays outside of.

Beside it the same as JSON, which is what a run of some parts adds to.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.growth import Curve, merged
from bench.part import Part
from bench.picture import picture
from bench.results import Results
from bench.row import HEADINGS, figure

BENCH = "bench"
BEGIN, END = f"<!-- {BENCH}: begin -->", f"<!-- {BENCH}: end -->"
PICTURE = Path("images/growth.svg")


@dataclass(frozen=True)
class Report:
    path: Path

    @property
    def results(self) -> Results:
        return Results(self.path.with_suffix(".json"))

    def keep(self, part: Part) -> None:
        self.results.keep(part)
        self.write(self.results.load())

    def write(self, parts: Mapping[str, Part]) -> None:
        curves = merged(part.growth for part in parts.values())
        if curves:
            drawn = self.path.parent / PICTURE
            drawn.parent.mkdir(parents=True, exist_ok=True)
            drawn.write_text(picture(curves))
        put_between(self.path, _body(parts.values(), curves))


def put_between(path: Path, body: str, mark: str = BENCH) -> None:
    """In the place of what stands between these marks."""
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    text = path.read_text() if path.exists() else f"# Performance\n\n{begin}\n{end}\n"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{path} has no {begin} … {end}")
    path.write_text(f"{before}{begin}\n{body}{end}{after}")


def _body(parts: Iterable[Part], curves: Mapping[str, Curve]) -> str:
    parts = list(parts)
    lines = [_summary(parts), ""]
    for part in parts:
        told = f"{part.date}, {part.machine}, commit {part.commit}, {part.seconds:.0f} s"
        lines += [f"**{part.name}**: {told}.", ""]
        if part.rows:
            lines += [*table(HEADINGS, (row.cells() for row in part.rows)), ""]
    if curves:
        lines += ["## Growth", "", *_growth(curves), "", f"![How costs grow]({PICTURE})"]
    return "\n".join(lines) + "\n"


def _summary(parts: Iterable[Part]) -> str:
    rows = [row for part in parts for row in part.rows]
    aimed = [row for row in rows if row.met is not None]
    told = f"{sum(row.met is True for row in aimed)} of {len(aimed)} goals are met"
    if unmeasured := sum(bool(row.missing) for row in rows):
        told += f"; {unmeasured} rows could not be measured"
    return f"{told}."


def _growth(curves: Mapping[str, Curve]) -> list[str]:
    sizes = sorted({size for curve in curves.values() for size in curve.points})
    headings = ("cost", *(f"{size:,}" for size in sizes), "exponent", "last step", "")
    return table(headings, (_line(what, curve, sizes) for what, curve in curves.items()))


def _line(what: str, curve: Curve, sizes: Iterable[int]) -> tuple[str, ...]:
    values = (figure(curve.points[size]) if size in curve.points else "" for size in sizes)
    slopes = ("" if slope is None else f"{slope:.2f}" for slope in (curve.exponent, curve.last_step))
    name = f"{what}, {curve.unit}{' each' if curve.each else ''}"
    return (name, *values, *slopes, "**superlinear**" if curve.superlinear else "")


def table(headings: Iterable[str], lines: Iterable[tuple[str, ...]]) -> list[str]:
    headings = list(headings)
    rule = "|---" * len(headings) + "|"
    return [f"| {' | '.join(headings)} |", rule, *(f"| {' | '.join(map(_escaped, line))} |" for line in lines)]


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|")
