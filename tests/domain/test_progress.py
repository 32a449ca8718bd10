"""Pace and time left, of what moves, stands still, and is heard of no more."""

from domain.progress import PACE_SECONDS, STALE_SECONDS, Moved, Pace, Stage, as_told

MB = 1_000_000


def paces(*looks: tuple[float, int]) -> list[float | None]:
    pace = Pace()
    return [pace.look(at, done) for at, done in looks]


def test_what_is_told() -> None:
    """The time left is what is left at the pace that it has."""
    told = as_told(Stage.VERIFYING, 50 * MB, 200 * MB, 25.4 * MB, 2)
    assert told == Moved(Stage.VERIFYING, 50 * MB, 200 * MB, 25_400_000, 5.9, 2)


def test_what_is_not_known_is_not_told() -> None:
    """No total, no pace, or none any more: no time left. Bytes are told all the same."""
    unknown_total = as_told(Stage.TRANSFERRING, 50, None, 10.0, 1)
    assert (unknown_total.bytes_per_second, unknown_total.eta_seconds) == (10, None)
    for still in (None, 0.0):
        assert as_told(Stage.TRANSFERRING, 50, 100, still, 1).eta_seconds is None
    stale = as_told(Stage.TRANSFERRING, 50, 100, 10.0, 1, STALE_SECONDS + 1)
    assert (stale.bytes_done, stale.bytes_per_second, stale.eta_seconds) == (50, None, None)
    assert as_told(Stage.TRANSFERRING, 50, 100, 10.0, 1, STALE_SECONDS - 1).eta_seconds == 5


def test_a_home_that_grew_has_no_time_left_below_nothing() -> None:
    assert as_told(Stage.TRANSFERRING, 120, 100, 10.0, 1).eta_seconds == 0


def test_rows_of_a_version_without_stages() -> None:
    assert as_told(None, 1, 2, None, 1).stage is Stage.TRANSFERRING


def test_the_pace_is_that_of_what_moves() -> None:
    """Looking through a home before its first byte costs it nothing, and one look says nothing."""
    assert paces((0, 0), (30, 0), (31, 5 * MB), (32, 10 * MB)) == [None, None, 5 * MB, 5 * MB]


def test_the_pace_is_that_of_the_last_seconds() -> None:
    """A fast beginning does not hide that it has become slow, nor that it stands still."""
    fast = [(float(second), second * 100 * MB) for second in range(5)]
    slow = [(4.0 + second, 400 * MB + second * MB) for second in range(1, 13)]
    assert paces(*fast, *slow)[-1] == MB
    still = [(16.0 + second, 412 * MB) for second in range(1, 13)]
    assert paces(*fast, *slow, *still)[-1] == 0


def test_looks_that_are_rare_give_a_pace_too() -> None:
    """A worker that was held up for longer than the pace looks back."""
    assert paces((0, 1), (0.1, 2), (3 * PACE_SECONDS, 2 + 30 * MB))[-1] == 30 * MB / (3 * PACE_SECONDS - 0.1)
