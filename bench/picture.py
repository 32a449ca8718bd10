"""All curves in one picture, a small panel each: SVG, written by hand, so that both axes are what they should be.

Both are logarithmic, and one decade is as long on either of them in every panel: what looks steeper grows faster. The
dashed line is the growth that is allowed: linear for one run over all, none for what each workspace pays.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from bench.growth import LEAST_POINTS, Curve
from bench.row import figure

COLUMNS = 4
PANEL_WIDTH, PANEL_HEIGHT = 270, 210
LEFT, RIGHT, TOP, BOTTOM = 48, 16, 48, 26
"""Around the plot of a panel."""
GAP = 16
LEGEND = 24
LETTER = 6.2
"""About the width of one in a title."""
INK, FAINT, GRID, LINE, BAD = "#1f2937", "#6b7280", "#e5e7eb", "#2563eb", "#dc2626"
FONT = "font-family='ui-sans-serif,system-ui,Helvetica,Arial,sans-serif'"


def picture(curves: Mapping[str, Curve]) -> str:
    drawn = {what: curve for what, curve in curves.items() if len(_known(curve)) >= LEAST_POINTS}
    rows = math.ceil(len(drawn) / COLUMNS)
    columns = min(COLUMNS, len(drawn))
    width = columns * PANEL_WIDTH + (columns + 1) * GAP
    height = rows * PANEL_HEIGHT + (rows + 1) * GAP + LEGEND
    legend = "dashed: the growth that is allowed · red: more than that · N: workspaces"
    axes = _axes(drawn.values())
    panels = [
        _moved(
            GAP + number % COLUMNS * (PANEL_WIDTH + GAP),
            GAP + number // COLUMNS * (PANEL_HEIGHT + GAP),
            _panel(what, curve, axes),
        )
        for number, (what, curve) in enumerate(drawn.items())
    ]
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}'"
        f" {FONT} font-size='11' fill='{INK}'>\n<title>How costs grow with the number of workspaces</title>\n"
        f"<rect width='{width}' height='{height}' fill='#ffffff'/>\n"
        + "\n".join(panels)
        + f"\n{_text(GAP, height - GAP, legend, colour=FAINT)}\n</svg>\n"
    )


@dataclass(frozen=True)
class Axes:
    """The same for all panels, but for where the vertical one begins."""

    sizes: tuple[int, int]
    decades: float
    """That fit in the height of a panel."""

    def x(self, size: float) -> float:
        low, high = (math.log10(one) for one in self.sizes)
        return LEFT + (math.log10(size) - low) / max(high - low, 1.0) * (PANEL_WIDTH - LEFT - RIGHT)

    def y(self, value: float, middle: float) -> float:
        """`middle`: the logarithm of what is half way up."""
        plot = PANEL_HEIGHT - TOP - BOTTOM
        return TOP + plot / 2 - (math.log10(value) - middle) / self.decades * plot


def _axes(curves: Iterable[Curve]) -> Axes:
    known = [_known(curve) for curve in curves]
    sizes = [size for points in known for size, _ in points]
    spans = [math.log10(max(values) / min(values)) for values in ([value for _, value in points] for points in known)]
    return Axes((min(sizes, default=1), max(sizes, default=10)), max(3.0, *spans, 0.0) * 1.35)


def _panel(what: str, curve: Curve, axes: Axes) -> str:
    points = _known(curve)
    values = [math.log10(value) for _, value in points]
    middle = (min(values) + max(values)) / 2
    colour = BAD if curve.superlinear else LINE
    places = [(axes.x(size), axes.y(value, middle)) for size, value in points]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = "".join(f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3' fill='{colour}'/>" for x, y in places)
    labels = "".join(
        # Below the first one: above it the dashed line begins.
        _text(x, y - 8 if number else y + 16, figure(value), anchor=_anchor(number, len(points)), halo=True)
        for number, ((x, y), (_, value)) in enumerate(zip(places, points, strict=True))
    )
    return (
        _title(what, curve)
        + _grid(axes, middle)
        + _allowed(curve, points, axes, middle)
        + f"<polyline points='{line}' fill='none' stroke='{colour}' stroke-width='2'/>"
        + dots
        + labels
    )


def _title(what: str, curve: Curve) -> str:
    room = int(PANEL_WIDTH / LETTER)
    words = what if len(what) <= room else what[: room - 1] + "…"
    told = f"{curve.unit}{', each' if curve.each else ''}"
    power = "" if curve.exponent is None else f"{curve.exponent:.2f}"
    colour = BAD if curve.superlinear else FAINT
    raised = f"N<tspan dy='-4' font-size='9'>{power}</tspan>" if power else ""
    return (
        f"<text x='0' y='12' font-weight='600'>{escape(words)}</text>"
        + _text(0, 28, told, colour=FAINT)
        + f"<text x='{PANEL_WIDTH - RIGHT}' y='28' text-anchor='end' fill='{colour}'>{raised}</text>"
    )


def _grid(axes: Axes, middle: float) -> str:
    """A line for each decade that is seen, and what it stands for."""
    low, high = axes.sizes
    bottom, right = PANEL_HEIGHT - BOTTOM, PANEL_WIDTH - RIGHT
    found = []
    for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1):
        x = axes.x(10**power)
        found += [_line(x, TOP, x, bottom), _text(x, bottom + 14, _short(10**power), anchor="middle", colour=FAINT)]
    half = axes.decades / 2
    for power in range(math.ceil(middle - half), math.floor(middle + half) + 1):
        y = axes.y(10**power, middle)
        found += [_line(LEFT, y, right, y), _text(LEFT - 5, y + 4, f"{10**power:,g}", anchor="end", colour=FAINT)]
    return "".join(found)


def _allowed(curve: Curve, points: Sequence[tuple[int, float]], axes: Axes, middle: float) -> str:
    """From the first point on, as far as the panel goes."""
    (first, cost), (last, _) = points[0], points[-1]
    top = middle + axes.decades / 2
    reach = last
    if curve.allowed:
        reach = min(last, int(first * 10 ** max((top - math.log10(cost)) / curve.allowed, 0.0)))
    end = cost * (reach / first) ** curve.allowed
    x1, y1, x2, y2 = axes.x(first), axes.y(cost, middle), axes.x(reach), axes.y(end, middle)
    place = f"x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}'"
    return f"<line {place} stroke='{FAINT}' stroke-dasharray='3 4' opacity='0.7'/>"


def _known(curve: Curve) -> list[tuple[int, float]]:
    return sorted((size, value) for size, value in curve.points.items() if size > 0 and value > 0)


def _anchor(number: int, count: int) -> str:
    return "start" if number == 0 else "end" if number == count - 1 else "middle"


def _short(size: int) -> str:
    return f"{size // 1000:,}k" if size >= 1000 else str(size)


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f"<line x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}' stroke='{GRID}'/>"


def _text(x: float, y: float, words: str, *, anchor: str = "start", colour: str = INK, halo: bool = False) -> str:
    """With a halo it can be read on lines."""
    around = " stroke='#ffffff' stroke-width='3' paint-order='stroke'" if halo else ""
    return f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}' fill='{colour}'{around}>{escape(words)}</text>"


def _moved(x: float, y: float, inside: str) -> str:
    return f"<g transform='translate({x:.0f} {y:.0f})'>{inside}</g>"
