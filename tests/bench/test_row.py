"""A row: its ratio, whether its goal is met, and how it is told."""

import json

from bench.row import NOT_MEASURED, Row, figure, quantile


def test_a_goal_is_about_the_ratio_where_there_is_a_floor_and_about_the_value_where_there_is_none() -> None:
    """1.25 times the floor misses 1.2 ×, whatever the seconds; 40 ms meet 40 ms; where more is better, less misses."""
    assert Row("a", [2.5, 9, 1], [2, 2, 2], goal=1.2).met is False
    assert Row("b", [40], goal=40, unit="ms").met is True
    assert Row("c", [59], goal=60, unit="/s", at_least=True).met is False
    assert Row("d", [1]).met is None


def test_what_could_not_be_measured_says_so_and_meets_no_goal() -> None:
    """It is a line of the table like any other, with the reason in it."""
    row = Row.unmeasured("proxy: p99", "wrk is not installed")
    assert row.met is None
    assert row.cells()[:2] == ("proxy: p99", NOT_MEASURED)
    assert row.cells()[-1] == "wrk is not installed"


def test_the_spread_is_told_of_both_and_not_of_a_single_one() -> None:
    """A median without its spread could be anything; a single one has none."""
    cells = Row("a", [1, 2, 3], [1, 1, 2]).cells()
    assert cells[2:5] == ("1–3", "1 s (1–2)", "2.00 ×")
    assert Row("a", [1], [1]).cells()[2:4] == ("", "1 s")


def test_it_comes_back_from_json_as_it_was() -> None:
    """Also one that was not measured."""
    for row in (Row("a", [1.5, 2.5], [1.0], 1.3, "ms", "note", at_least=True), Row.unmeasured("b", "why")):
        assert Row.from_json(json.loads(json.dumps(row.as_json()))) == row


def test_figures_have_three_digits_that_count_and_no_powers_of_ten() -> None:
    """Also large and small ones."""
    assert [figure(value) for value in (12345.6, 999.6, 0.00001234, 1000, 0)] == [
        "12,346",
        "1,000",
        "0.0000123",
        "1,000",
        "0",
    ]


def test_a_quantile_is_never_beyond_what_was_seen() -> None:
    """The p99 of a few is the largest of them at most."""
    assert quantile([1, 2, 3], 99) <= 3
    assert quantile(range(101), 99) == 99
