"""`python -m tests.mutations [NUMBER…]`: make each mistake in a copy of the repository, and see its test fail.

Each test runs alone, twice: without the mistake, where it has to pass, and with it. Its own time limit is lifted, so
the clock is not what fails it; a run that never ends has found nothing. What was found is kept at once, so a sitting
may be ended at any time (or after --minutes), and the next one goes on with what was not found yet. When it ends, the
table of docs/reliability.md is written.
"""

import argparse
import ast
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests import report
from tests.mutations.kept import Row, fingerprint, keep, rows
from tests.mutations.table import MUTATIONS, Mutation

ROOT = Path(__file__).parents[2]
SECONDS = 1500.0
"""For one test, whatever else the machine does; its process gets some more, to end what it started."""
TO_END = 300.0
NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv", ".codehub", ".*_cache", ".hypothesis", "__pycache__", "node_modules"
)
PASSED, FAILED = 0, 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("promises", nargs="*", type=int, help="only these")
    parser.add_argument("--again", action="store_true", help="also those that were found before")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin none after this")
    parser.add_argument("--check", action="store_true", help="only make each mistake, and take it back")
    options = parser.parse_args()
    chosen = [
        mutation
        for mutation, row in rows()
        if (not options.promises or mutation.promise in options.promises)
        and (options.again or options.check or row is None or not row["found"])
    ]
    with tempfile.TemporaryDirectory(prefix="codehub-mutations-") as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(ROOT, copy, ignore=NOT_COPIED, symlinks=True)
        (copy / ".venv").symlink_to(ROOT / ".venv")
        if options.check:
            for mutation in chosen:
                check(copy, mutation)
            _say(f"{len(chosen)} mistakes can be made.")
            return 0
        missed = _try_all(copy, chosen, time.monotonic() + options.minutes * 60)
    report.write_block("mutations", report.mutations(rows()))
    return 1 if missed else 0


def check(folder: Path, mutation: Mutation) -> None:
    """Make it and take it back: its place is there, once, and the code is still code with it."""
    path = folder / mutation.file
    right = path.read_text(encoding="utf-8")
    assert right.count(mutation.old) == 1, f"{mutation.file} has changed: mend tests/mutations/table.py"
    wrong = right.replace(mutation.old, mutation.new)
    assert wrong != right
    if mutation.file.endswith(".py"):
        ast.parse(wrong)
    path.write_text(wrong, encoding="utf-8")
    path.write_text(right, encoding="utf-8")


def _try_all(copy: Path, chosen: list[Mutation], until: float) -> int:
    """How many were not found."""
    commit, missed = _commit(), 0
    for mutation in chosen:
        if time.monotonic() > until:
            _say("The time is up: the next sitting goes on from here.")
            break
        began = time.monotonic()
        row = _try(copy, mutation)
        missed += not row["found"]
        keep(mutation, {"mutation": fingerprint(mutation), "promise": mutation.promise, **row, "commit": commit})
        word = "found" if row["found"] else "NOT FOUND"
        seconds = time.monotonic() - began
        _say(f"{mutation.promise:2} {word:9} {seconds:4.0f} s  {mutation.mistake}: {row['by']} [{mutation.test}]")
    _say(
        f"{sum(row is not None and row['found'] for _, row in rows())} of {len(MUTATIONS)} mistakes were found by now."
    )
    return missed


def _try(copy: Path, mutation: Mutation) -> Row:
    date = time.strftime("%Y-%m-%d", time.gmtime())
    without = _without(copy, mutation.test)
    if without is not None:
        return {"found": False, "by": f"the test fails without the mistake: {without['words']}", "date": date}
    path = copy / mutation.file
    right = path.read_text(encoding="utf-8")
    check(copy, mutation)
    path.write_text(right.replace(mutation.old, mutation.new), encoding="utf-8")
    try:
        failure = _pytest(copy, mutation.test)
    finally:
        path.write_text(right, encoding="utf-8")
    if failure is None:
        return {"found": False, "by": "the test passes with the mistake", "date": date}
    by = "never ended" if failure["out_of_time"] else f"{failure['by']}: {failure['words']}"
    # What fails before the test itself begins was not found by it.
    return {"found": not failure["out_of_time"] and failure["when"] == "call", "by": by, "date": date}


@functools.cache
def _without(copy: Path, test: str) -> Row | None:
    return _pytest(copy, test)


def _pytest(copy: Path, test: str) -> Row | None:
    """How the test failed first; None where it passed."""
    command = [
        sys.executable,
        *("-m", "pytest", "-q", "--no-header", "--tb=line", "--show-capture=no", "-m", "not full"),
        *("-p", "no:cacheprovider", "-p", "tests.mutations.verdict", "-n", "0"),
        test,
    ]
    with tempfile.TemporaryDirectory(prefix="codehub-verdict-") as folder:
        kept = Path(folder) / "failures"
        environment = {
            **os.environ,
            # Its own modules come first, whatever is installed.
            "PYTHONPATH": str(copy),
            "PYTHONDONTWRITEBYTECODE": "1",
            "CODEHUB_VERDICT": str(kept),
            "CODEHUB_VERDICT_SECONDS": str(SECONDS),
        }
        environment.pop("CODEHUB_REPORT", None)
        never = {"when": "call", "by": "", "out_of_time": True, "words": "it never ended"}
        try:
            done = subprocess.run(
                command,
                cwd=copy,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=SECONDS + TO_END,
            )
        except subprocess.TimeoutExpired:
            return never
        if done.returncode == PASSED:
            return None
        failures = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
        if done.returncode != FAILED or not failures:
            _say(f"{done.stdout[-1500:]} {done.stderr[-1500:]}")
            return {"when": "collection", "by": "", "out_of_time": False, "words": f"pytest ended {done.returncode}"}
        first: Row = failures[0]
        return first


def _commit() -> str:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "--", "*.py", "*.sql") else "")


def _say(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
