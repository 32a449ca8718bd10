"""`python -m tests.mutations [NUMBER…]`: make each mistake in a copy of the repository, and see its test fail.

A mistake counts as found when the test passes without it and fails with it, by its own judgement: a test that ran into
its time limit, as on a busy machine, has found nothing. What is found is kept in .mutations (or CODEHUB_REPORT) beside
what former runs found, from where `python -m tests.report .mutations` writes all of it into the document.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests import report
from tests.mutations.table import MUTATIONS, Mutation

ROOT = Path(__file__).parents[2]
SECONDS = 900
NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv", ".codehub", ".*_cache", ".hypothesis", "__pycache__", "node_modules"
)
FAILED = 1
"""pytest's exit code when tests ran and some failed; anything else is not what is looked for."""
OUT_OF_TIME = -1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("promises", nargs="*", type=int, help="only these")
    parser.add_argument("--trust", action="store_true", help="do not run the tests without the mistakes first")
    options = parser.parse_args()
    os.environ.setdefault("CODEHUB_REPORT", ".mutations")
    chosen = [one for one in MUTATIONS if not options.promises or one.promise in options.promises]
    with tempfile.TemporaryDirectory(prefix="codehub-mutations-") as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(ROOT, copy, ignore=NOT_COPIED, symlinks=True)
        (copy / ".venv").symlink_to(ROOT / ".venv")
        # In the order of the files, so that those on the same services are not one run each.
        if not options.trust and not _passes(copy, sorted({one.test for one in chosen})):
            _say("Some of the tests fail without any mistake: mend them first.")
            return 1
        found = [_try(copy, one) for one in chosen]
    report.save("mutations", _beside_former(found))
    missed = [one for one in found if not one["found"]]
    _say(f"{len(found) - len(missed)} of {len(found)} mistakes were found.")
    return 1 if missed else 0


def _beside_former(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The last outcome of each mistake that is still made, in the order of the table."""
    known = {_key(one): one for one in (*(report.saved("mutations") or []), *found)}
    keys = ((mutation.promise, mutation.mistake) for mutation in MUTATIONS)
    return [known[key] for key in keys if key in known]


def _key(one: dict[str, Any]) -> tuple[int, str]:
    return one["promise"], one["mistake"]


def _try(copy: Path, mutation: Mutation) -> dict[str, Any]:
    path = copy / mutation.file
    right = path.read_text(encoding="utf-8")
    assert right.count(mutation.old) == 1, f"{mutation.promise}: {mutation.file} has another text by now"
    path.write_text(right.replace(mutation.old, mutation.new), encoding="utf-8")
    began = time.monotonic()
    try:
        code = _pytest(copy, [mutation.test])
    finally:
        path.write_text(right, encoding="utf-8")
    found = code == FAILED
    seconds = time.monotonic() - began
    word = "found" if found else f"NOT FOUND ({code})"
    _say(f"{mutation.promise:2} {word:10} {seconds:4.0f} s  {mutation.mistake}  [{mutation.test}]")
    return {
        "promise": mutation.promise,
        "mistake": mutation.mistake,
        "file": mutation.file,
        "by": mutation.test,
        "found": found,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def _say(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def _passes(copy: Path, tests: list[str]) -> bool:
    return _pytest(copy, tests) == 0


def _pytest(copy: Path, tests: list[str]) -> int:
    command = [
        sys.executable,
        *("-m", "pytest", "-q", "--no-header", "--tb=line", "--show-capture=no", "-m", "not full"),
        *("-p", "no:cacheprovider", "-n", "0"),
        *tests,
    ]
    # Its own modules come first, whatever is installed.
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("CODEHUB_REPORT", None)
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return OUT_OF_TIME
    if done.returncode == FAILED and "from pytest-timeout" in done.stdout:
        return OUT_OF_TIME
    if done.returncode not in {0, FAILED}:
        _say(f"{done.stdout[-1500:]} {done.stderr[-1500:]}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
