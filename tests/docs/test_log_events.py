"""What the docs and the alerts tell people to look for in the log is logged."""

import re
from pathlib import Path

from tests.docs.test_deploy import ALERTS, ROOT
from tests.docs.test_docs import DOCUMENTS

PACKAGES = ("activities", "adapters", "coordinator", "domain", "starter", "workflows")
# A word such as `node_silent`, not a part of a path, a file or a call.
WORD = re.compile(r"(?<![\w./{-])[a-z]+(?:_[a-z]+)+(?![\w/({-]|\.\w)")
# `the log's x`, `logs x`, `logged as x`, `the log has a line x`, in one sentence; `until x`, where it is followed.
BEFORE = re.compile(r"\b(?:log's|logs?|logged)\b[^.|]{0,60}$|# until $")
AFTER = re.compile(r"^`?,? in (?:the|that) log\b")


def test_events_that_are_named_are_logged() -> None:
    known = events()
    for path in (*DOCUMENTS, ALERTS):
        assert named(path.read_text()) - known == set(), path


def test_the_check_of_events_has_teeth() -> None:
    text = "Look in the API's log for\nnever_said. A worker that logs `node_lazy`, or `was_not`, (or_not in the log)."
    assert named(text) == {"never_said", "node_lazy", "was_not", "or_not"}
    found = set().union(*(named(path.read_text()) for path in (*DOCUMENTS, ALERTS)))
    assert {"leader_cannot_reach_database", "node_silent", "wake_not_sent", "login_failed", "worker_ready"} <= found
    assert {"schema_is_newer", "container_keeps_ending", "constraint_not_validated"} <= found
    assert len(events()) > 100


def events() -> set[str]:
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    return set().union(*(_logged(path) for path in (*files, ROOT / "worker.py", ROOT / "settings.py")))


def named(text: str) -> set[str]:
    text = re.sub(r"\s+", " ", text)
    return {
        found[0]
        for found in WORD.finditer(text)
        if BEFORE.search(text[max(0, found.start() - 80) : found.start()])
        or AFTER.match(text[found.end() : found.end() + 20])
    }


def _logged(path: Path) -> set[str]:
    return set(re.findall(r'\blog\.(?:debug|info|warning|error|exception)\(\s*"(\w+)"', path.read_text()))
