"""A known vulnerability fails `make lint`; a network that is away does not."""

import threading
import time

import pytest

from tests.supply import vulnerabilities
from tests.supply.vulnerabilities import locked, main

PACKAGES = [("good", "1"), ("bad", "2")]


def test_a_finding_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(lambda name, _: ["CVE-1 (X)"] if name == "bad" else [], PACKAGES) == 1
    assert "bad 2: CVE-1" in capsys.readouterr().out


def test_a_finding_that_was_judged_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vulnerabilities, "IGNORED", {"CVE-1": "not reachable"})
    assert main(lambda name, _: ["CVE-1 (X)"] if name == "bad" else [], PACKAGES) == 0


def test_a_feed_that_is_away_is_told_and_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    def away(_name: str, _version: str) -> list[str]:
        raise ConnectionError

    assert main(away, PACKAGES) == 0
    assert "0 of 2 packages" in capsys.readouterr().out


def test_a_feed_that_hangs_costs_seconds_and_hides_no_finding() -> None:
    over = threading.Event()

    def hanging(name: str, _version: str) -> list[str]:
        if name == "good":
            over.wait(120)
        return ["CVE-1 (X)"]

    began = time.monotonic()
    try:
        assert main(hanging, PACKAGES, seconds=3) == 1
    finally:
        over.set()
    assert time.monotonic() - began < 60


def test_every_locked_package_is_asked_for() -> None:
    found = dict(locked())
    assert len(found) > 50
    assert "asyncpg" in found
    assert "codehub" not in found
