"""The tables of docs/performance.md: what a run of some parts keeps of the others."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from bench.growth import Growth
from bench.part import Part
from bench.picture import picture
from bench.report import BEGIN, END, Report, put_between
from bench.results import Results
from bench.row import Row
from bench.storm import LONGEST_SECONDS, longest


def _part(name: str, date: str, row: Row, **costs: float) -> Part:
    part = Part(name, date, "2 cores", "abc1234", 12.0, [row])
    for what, value in costs.items():
        for size in (100, 1_000):
            part.growth.add(what, size, value * size)
    return part


def test_a_run_of_one_part_leaves_the_others_with_their_own_date(tmp_path: Path) -> None:
    """So a long run can be made in pieces, on several days."""
    docs = tmp_path / "performance.md"
    docs.write_text(f"# Performance\n\nBefore.\n\n{BEGIN}\nold\n{END}\n\nAfter.\n")
    report = Report(docs)
    report.keep(_part("tables", "2026-01-01 10:00 UTC", Row("a page", [3.0], unit="ms"), page=1.0))
    report.keep(_part("proxy", "2026-02-02 10:00 UTC", Row("a request", [0.2], unit="ms")))
    report.keep(_part("proxy", "2026-03-03 10:00 UTC", Row("a request", [0.1], unit="ms")))
    text = docs.read_text()
    assert "**tables**: 2026-01-01 10:00 UTC, 2 cores, commit abc1234, 12 s." in text
    assert "**proxy**: 2026-03-03" in text
    assert "2026-02-02" not in text
    assert "| a request | 0.1 ms |" in text
    assert "| page, ms | 100 | 1,000 | 1.00 | 1.00 |  |" in text
    assert text.startswith("# Performance\n\nBefore.")
    assert text.endswith("After.\n")
    assert "old" not in text


def test_each_tool_writes_between_marks_of_its_own(tmp_path: Path) -> None:
    """What another one wrote stays; and a file without them is left as it is, or it would grow with every run."""
    docs = tmp_path / "performance.md"
    docs.write_text(f"{BEGIN}\ntable\n{END}\nprose\n<!-- bench.start: begin -->\nold\n<!-- bench.start: end -->\n")
    put_between(docs, "new\n", "bench.start")
    assert docs.read_text() == (
        f"{BEGIN}\ntable\n{END}\nprose\n<!-- bench.start: begin -->\nnew\n<!-- bench.start: end -->\n"
    )
    docs.write_text("prose\n")
    with pytest.raises(ValueError, match=r"bench\.start: begin"):
        put_between(docs, "new\n", "bench.start")
    assert docs.read_text() == "prose\n"


def test_one_stall_misses_the_goal_however_short_the_other_waits(tmp_path: Path) -> None:
    """The median of the waits would hide it."""
    waits = [1.0, 2.0, LONGEST_SECONDS + 1, 2.0, 1.0]
    row = longest("wait", waits)
    assert row.met is False
    assert row.note == "the worst of 5 rounds: 1, 2, 31, 2, 1"
    Report(tmp_path / "p.md").keep(_part("scale", "2026-01-01", row))
    assert "0 of 1 goals are met" in (tmp_path / "p.md").read_text()


def test_goals_and_what_could_not_be_measured_are_counted(tmp_path: Path) -> None:
    """At the top, so that nobody has to look for what is missing."""
    part = _part("proxy", "2026-01-01", Row("a", [1], goal=2))
    part.add(Row("b", [3], goal=2), Row.unmeasured("c", "a | b"))
    Report(tmp_path / "p.md").keep(part)
    text = (tmp_path / "p.md").read_text()
    assert "1 of 2 goals are met; 1 rows could not be measured." in text
    assert "| c | not measured |" in text
    assert "a \\| b" in text


def test_parts_are_told_in_the_same_order_whichever_ran_last(tmp_path: Path) -> None:
    """Beside each other two versions of the table can be compared."""
    results = Results(tmp_path / "bench.json")
    for name in ("proxy", "transitions", "scale"):
        results.keep(_part(name, "2026-01-01", Row(name, [1])))
    assert list(results.load()) == ["transitions", "scale", "proxy"]


def test_the_picture_has_a_panel_for_each_curve_and_marks_what_is_superlinear() -> None:
    """It is well-formed, whatever the names; and what has no points that can be drawn is left out."""
    growth = Growth()
    for size in (100, 1_000, 10_000):
        growth.add("linear & fine", size, size)
        growth.add("quadratic <bad>", size, size**2)
        growth.add("nothing", size, 0.0)
    drawn = picture(growth.curves)
    root = ET.fromstring(drawn)
    names = {"svg": "http://www.w3.org/2000/svg"}
    panels = root.findall("svg:g", names)
    assert len(panels) == 2
    lines = [panel.find("svg:polyline", names) for panel in panels]
    strokes = [line.get("stroke") for line in lines if line is not None]
    assert len(set(strokes)) == 2
    places = [
        float(one)
        for line in lines
        if line is not None
        for pair in line.get("points", "").split()
        for one in pair.split(",")
    ]
    assert min(places) >= 0
    assert max(places) <= 270
