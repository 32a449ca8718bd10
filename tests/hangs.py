"""A test run always ends, and says why: pytest-timeout interrupts Python code, but neither a loop of uvloop that waits
nor what runs between the tests. Where that hangs, this shows the stacks of all threads and ends the process; xdist
then names the test, and the run is over.
"""

import faulthandler
import os
from collections.abc import Generator

import pytest

GRACE_SECONDS = 120.0
END_SECONDS = 300.0
"""For all that comes after the last test: the services stop, an image is removed."""


class Hangs:
    def __init__(self, config: pytest.Config) -> None:
        # Nothing is captured while pytest configures itself: this is where the run prints to.
        self._errors = os.dup(2)
        self._default = float(config.getini("timeout"))
        self._one_of_several = hasattr(config, "workerinput")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        marker = item.get_closest_marker("timeout")
        self._within((float(marker.args[0]) if marker else self._default) + GRACE_SECONDS)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """One of several processes has ended its last test by now, and waits for the others as long as they take."""
        if not self._one_of_several:
            self._within(END_SECONDS)

    def _within(self, seconds: float) -> None:
        faulthandler.dump_traceback_later(seconds, exit=True, file=self._errors)


class AtOnce:
    """In the controlling process: failures as they happen, for a run that is ended before its summary."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            terminal = self._config.get_terminal_writer()
            terminal.line()
            terminal.line(f"{report.nodeid} ({report.when}, {report.duration:.0f} s)", red=True)
            terminal.line(report.longreprtext)
