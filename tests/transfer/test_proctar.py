"""How much there is of a home, which is told while it is read."""

import os
import time
from collections.abc import Callable
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


def test_whoever_measures_does_not_outlive_the_transfer(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk may take minutes to be looked through, and the volume is to be removed."""
    programs = home / "programs"
    programs.mkdir()
    (programs / "du").write_text(f'#!/bin/sh\necho $$ > "{home}/new" && mv "{home}/new" "{home}/pid"\nexec sleep 600\n')
    (programs / "du").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    with ProcessTar(home, "home") as stream:
        _until((home / "pid").exists)
        pid = int((home / "pid").read_text())
        assert Path(f"/proc/{pid}").exists()
    stream._measuring.join(30)
    assert not Path(f"/proc/{pid}").exists()


def _until(met: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not met():
        assert time.monotonic() < deadline
        time.sleep(0.01)
