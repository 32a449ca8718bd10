"""The plan to a million: queues in line, and where its figures come from."""

from dataclasses import replace

import pytest

from bench.figures import MEASURED, Unknown, figures
from bench.million import Morning, simulate
from bench.part import Part
from bench.row import Row
from bench.stage import Stage

MORNING = Morning(
    workspaces=10_000,
    waking=0.1,
    home_mb=100,
    store_rate=1e9,
    admission_ms=0.001,
    placement_ms=0.001,
    transition_rate=1e6,
    transition_ms=20,
    start_rate=1e6,
    start_seconds=0.5,
    restore_rate=1e9,
)
"""Enough of everything."""


def test_a_stage_lets_one_through_after_the_other() -> None:
    """Who finds it empty takes what one alone takes; who comes with others waits for those before."""
    assert Stage(2.0).served([0, 0, 10]) == [2, 4, 12]
    assert Stage(1.0, alone=3.0).served([0, 0]) == [3, 4]


def test_with_enough_of_everything_nobody_waits() -> None:
    """All at once: what one takes alone."""
    wait = simulate(MORNING, 1, 10, spread=0.0, archived=0.0)
    assert wait.longest == pytest.approx(0.52, abs=0.01)


@pytest.mark.parametrize(
    ("scarce", "stage", "longest"),
    [
        ({"admission_ms": 10.0}, "admission", 1_000 * 0.01),
        ({"placement_ms": 20.0}, "placement", 1_000 * 0.02),
        ({"transition_rate": 50.0}, "transition", 1_000 / 50),
        ({"store_rate": 10_000.0}, "object store", 1_000 * 100 / 10_000),
    ],
)
def test_what_is_scarce_is_where_they_wait(scarce: dict[str, float], stage: str, longest: float) -> None:
    """However many nodes there are: what is shared by all bounds them."""
    wait = simulate(replace(MORNING, **scarce), 1, 1_000, spread=0.0, archived=1.0)
    assert wait.slowest == stage
    assert wait.longest == pytest.approx(longest, rel=0.15)


def test_more_pairs_help_the_transition_and_not_the_database() -> None:
    """Locks in PostgreSQL are held one at a time, whatever there is more of."""
    slow = replace(MORNING, transition_rate=50.0)
    assert simulate(slow, 10, 100, 0.0, 0.0).longest < simulate(slow, 1, 100, 0.0, 0.0).longest / 5
    locked = replace(MORNING, admission_ms=10.0)
    assert simulate(locked, 10, 100, 0.0, 0.0).longest == pytest.approx(
        simulate(locked, 1, 100, 0.0, 0.0).longest, rel=0.01
    )


def test_more_nodes_help_restores_and_starts() -> None:
    """Each has its own disk and its own engine."""
    for scarce in ({"restore_rate": 100.0}, {"start_rate": 2.0}):
        morning = replace(MORNING, **scarce)
        assert simulate(morning, 1, 100, 0.0, 1.0).longest < simulate(morning, 1, 10, 0.0, 1.0).longest / 3


def _parts(**without: str) -> dict[str, Part]:
    parts: dict[str, Part] = {}
    for wanted in MEASURED.values():
        part = parts.setdefault(wanted.part, Part(wanted.part, "2026-01-01 10:00 UTC", "2 cores", "abc1234"))
        part.add(Row(wanted.row, [2.0], missing=without.get(wanted.part, "")))
    return parts


def test_each_figure_says_where_it_comes_from() -> None:
    """Measured, with the row, its date and the commit; or given, which wins."""
    used = figures({"admission_ms": 7.0}, _parts())
    assert (used["admission_ms"].value, used["admission_ms"].source) == (7.0, "given")
    assert used["start_rate"].value == 20 / 2.0
    assert used["restore_rate"].value == 200 / 2.0
    assert used["start_rate"].source == "“20 created at once”, 2026-01-01 10:00 UTC, commit abc1234"


def test_what_was_not_measured_is_asked_for_and_not_made_up() -> None:
    """Neither a part that never ran nor a row that could not be measured is a figure."""
    for parts in ({}, _parts(tables="wrk is missing")):
        with pytest.raises(Unknown, match="python -m bench tables"):
            figures({}, parts)
