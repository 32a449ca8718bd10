"""What a bar says beside itself."""

from typing import Any

import pytest

from starter.commands.moved import bytes_moved, doing, fitting

MOVED: dict[str, Any] = {
    "bytes_done": 50_000_000,
    "bytes_total": 200_000_000,
    "bytes_per_second": 25_000_000,
    "eta_seconds": 6.0,
}


@pytest.mark.parametrize(
    ("room", "text"),
    [
        (42, "50.0 MB of 200 MB, 25.0 MB/s, 6.0 s left"),
        (32, "50.0 MB of 200 MB, 6.0 s left"),
        (20, "50.0 MB of 200 MB"),
        (5, "25 %"),
        (2, ""),
    ],
)
def test_it_says_as_much_as_fits(room: int, text: str) -> None:
    """A line that wraps would leave its rest on the screen."""
    assert fitting(MOVED, room) == text


def test_what_is_not_known_is_not_said() -> None:
    bare = {"bytes_done": 1500, "bytes_total": None}
    assert (bytes_moved(bare), fitting(bare, 80), fitting(bare, 3)) == ("1.5 kB", "1.5 kB", "")


def test_the_stage_is_said() -> None:
    """And an older server, which tells none, is understood."""
    assert doing("ARCHIVING", {**MOVED, "stage": "VERIFYING"}) == "ARCHIVING, verifying"
    for other in (None, MOVED, {**MOVED, "stage": "TRANSFERRING"}):
        assert doing("ARCHIVING", other) == "ARCHIVING"
