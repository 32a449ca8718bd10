"""A plugin of pytest for a run with a mistake in the code: the clock is not what fails it, and what does is kept.

`-p tests.mutations.verdict`, with CODEHUB_VERDICT=FILE and CODEHUB_VERDICT_SECONDS in the environment.
"""

import json
import os
from collections.abc import Generator
from pathlib import Path

import pytest

LONGEST = 160
"""Of the words of a failure that are kept."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A limit for all, above what any of them takes on a machine that does other things as well."""
    for item in items:
        item.add_marker(pytest.mark.timeout(float(os.environ["CODEHUB_VERDICT_SECONDS"])), append=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and call.excinfo is not None:
        words = " ".join(str(call.excinfo.value).split())
        _keep(
            {
                "test": item.nodeid,
                "when": report.when,
                "by": call.excinfo.typename,
                # Of pytest-timeout, whose exception is that of pytest.fail.
                "out_of_time": words.startswith("Timeout (>"),
                "words": words[:LONGEST],
            }
        )
    return report


def _keep(failure: dict[str, object]) -> None:
    with Path(os.environ["CODEHUB_VERDICT"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(failure) + "\n")
