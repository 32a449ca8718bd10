from datetime import UTC, datetime, timedelta

import pytest

from starter.commands.words import ago, ahead, parse_seconds, parse_ttl, size, span, took

NOW = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (89, "89 s"),
        (90, "2 min"),
        (7 * 60, "7 min"),
        (89 * 60, "89 min"),
        (90 * 60, "1 h 30 min"),
        (2 * 3600, "2 h"),
        (7 * 3600 + 1200, "7 h"),
        (30 * 3600, "30 h"),
        (3 * 86400, "3 days"),
        (-5, "0 s"),
    ],
)
def test_spans(seconds: int, words: str) -> None:
    assert span(timedelta(seconds=seconds)) == words


def test_relative_times() -> None:
    """As people say them; a clock that is a moment off makes nothing absurd."""
    assert ago(NOW - timedelta(minutes=7), NOW) == "7 min ago"
    assert ago(NOW + timedelta(seconds=3), NOW) == "just now"
    assert ago(None, NOW) == "never"
    assert ahead(NOW + timedelta(minutes=4), NOW) == "in 4 min"
    assert ahead(NOW - timedelta(minutes=4), NOW) == "any moment"
    assert ahead(NOW + timedelta(minutes=10, seconds=32), NOW) == "in 10 min"
    assert ahead(NOW + timedelta(seconds=89), NOW) == "in 89 s"


def test_sizes() -> None:
    assert [size(count) for count in (0, 999, 1000, 12_345_678, 314_582_456, 5e9, 7e15)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "12.3 MB",
        "315 MB",
        "5.0 GB",
        "7000.0 TB",
    ]


def test_how_long_it_took() -> None:
    assert (took(0.04), took(12.34), took(60)) == ("0.0 s", "12.3 s", "60 s")


@pytest.mark.parametrize(("typed", "seconds"), [("90", 90), ("90s", 90), ("1.5h", 5400), ("7 D", 604800), ("15m", 900)])
def test_durations_as_typed(typed: str, seconds: int) -> None:
    assert parse_seconds(typed) == seconds


@pytest.mark.parametrize("typed", ["", "soon", "-1", "1h30m", "m", "1e3"])
def test_what_is_no_duration(typed: str) -> None:
    with pytest.raises(ValueError, match="90s, 15m, 2h or 7d"):
        parse_seconds(typed)


def test_ttls() -> None:
    """Zero is never, and nothing is the installation's default."""
    assert (parse_ttl("Never"), parse_ttl("default"), parse_ttl("2h")) == (0, None, 7200)
