"""How costs grow: the exponent that fits, and what is marked."""

import math

import pytest

from bench.growth import Curve, Growth, exponent

SIZES = (100, 1_000, 10_000, 100_000)


def _curve(power: float, *, each: bool = False, fixed: float = 0.0) -> Curve:
    return Curve("ms", each, {size: fixed + (size / 100) ** power for size in SIZES})


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_the_exponent_is_that_of_the_curve(power: float) -> None:
    """Of a pure power, whatever it is."""
    assert exponent(_curve(power).points) == pytest.approx(power, abs=1e-9)


def test_too_few_points_say_nothing() -> None:
    """A single size, or what costs nothing, has no slope and is not marked."""
    assert exponent({100: 1.0}) is None
    assert exponent({100: 0.0, 1000: 0.0, 10_000: 3.0}) is None
    assert not Curve("ms", each=False, points={100: 0.0}).superlinear


@pytest.mark.parametrize(("power", "marked"), [(0.9, False), (1.0, False), (1.1, False), (1.2, True), (2.0, True)])
def test_one_run_over_all_may_grow_linearly(power: float, marked: bool) -> None:
    """A little more is noise."""
    assert _curve(power).superlinear is marked


@pytest.mark.parametrize(("power", "marked"), [(0.0, False), (0.1, False), (0.2, True), (1.0, True)])
def test_what_each_workspace_pays_may_not_grow(power: float, marked: bool) -> None:
    """A cost in proportion to all that each of them pays is quadratic for all of them."""
    assert _curve(power, each=True).superlinear is marked


def test_what_does_not_depend_on_the_size_hides_no_quadratic_cost() -> None:
    """The fit over all sizes is gentle, the last step is not."""
    curve = _curve(2, fixed=20_000)
    assert curve.exponent is not None
    assert curve.exponent < 1.15
    assert curve.superlinear


def test_noise_between_sizes_that_are_close_is_not_marked() -> None:
    """Half as much again between 1,000 and 1,200 is a steep slope, and may be chance."""
    curve = Curve("ms", each=False, points={1_000: 10.0, 1_200: 15.0})
    assert curve.exponent is not None
    assert curve.exponent > 2
    assert not curve.superlinear


def test_curves_come_back_from_json_as_they_were() -> None:
    """JSON knows no numbers as keys."""
    growth = Growth()
    growth.add("sweep", 100, 1.5)
    growth.add("sweep", 1_000, math.pi)
    growth.add("start", 100, 2.0, "s", each=True)
    body = growth.as_json()
    body["sweep"]["points"] = {str(size): value for size, value in body["sweep"]["points"].items()}
    assert Growth.from_json(body) == growth


def test_drawn_out_as_it_grew_and_at_least_as_it_may() -> None:
    """What hides behind a fixed part so far is not taken for free; what each pays stays what it is."""
    assert _curve(2.0).at(1_000_000) == pytest.approx(10_000**2)
    assert _curve(0.5).at(1_000_000) == pytest.approx(1_000**0.5 * 10)
    assert _curve(0.0, each=True).at(1_000_000) == pytest.approx(1.0)
