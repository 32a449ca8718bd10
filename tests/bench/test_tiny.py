"""The benchmarks themselves: each part can be measured. What they find in so little says nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench.__main__ import TRIED
from bench.growth import merged
from bench.results import ORDER, Results

ROOT = Path(__file__).parents[2]


@pytest.mark.full
@pytest.mark.docker
@pytest.mark.timeout(900)
def test_every_part_is_measured() -> None:
    """On real parts, as `make bench` does it; whatever fails or is missing shows in the exit code. And each cost is
    known at several sizes, or nobody could say how it grows."""
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--tiny", *ORDER], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    curves = merged(part.growth for part in Results(ROOT / TRIED).load().values())
    assert [what for what, curve in curves.items() if len(curve.points) < 2] == []
