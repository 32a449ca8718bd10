"""How much there is of a home, which is told while it is read."""

import os
import time
from pathlib import Path

import pytest

from adapters.transfer import proctar
from adapters.transfer.proctar import ProcessTar

SIZE = 8 << 20


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "big").write_bytes(os.urandom(SIZE))
    return tmp_path


def test_what_takes_a_while_is_measured(home: Path) -> None:
    """Nobody reads it here, so it goes on until it is known how much there is."""
    with ProcessTar(home, "home") as stream:
        deadline = time.monotonic() + 60
        while stream.total is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert SIZE <= stream.total < 2 * SIZE


def test_what_is_over_at_once_is_not_looked_at_twice(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proctar, "_MEASURED_AFTER", 60.0)
    with ProcessTar(home, "home") as stream:
        assert sum(map(len, stream)) > SIZE
        measuring = stream._measuring
    measuring.join(30)
    assert not measuring.is_alive()
    assert stream.total is None
