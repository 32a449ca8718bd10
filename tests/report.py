"""What a run of the tests found out, for docs/reliability.md.

With CODEHUB_REPORT=FOLDER in the environment, tests that measure something keep it there as JSON, and so does pytest
for the outcome of each test. `python -m tests.report FOLDER` writes the tables into the document, each between the two
comments that name it, and leaves the rest of it alone.
"""

import datetime as dt
import json
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.mutations.table import Mutation

DOCUMENT = Path(__file__).parents[1] / "docs" / "reliability.md"


def save(name: str, found: Any) -> None:
    folder = os.environ.get("CODEHUB_REPORT")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        body = {"date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC"), "found": found}
        (Path(folder) / f"{name}.json").write_text(json.dumps(body, indent=1, default=str), encoding="utf-8")


def saved(name: str) -> Any:
    """What a former run kept, or None."""
    path = Path(os.environ.get("CODEHUB_REPORT", "")) / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))["found"] if path.exists() else None


class Outcomes:
    """A plugin of pytest that keeps the outcome of each test; those of former runs into the same folder stay."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        one = self._found.setdefault(report.nodeid, {"outcome": "passed", "seconds": 0.0})
        one["seconds"] += report.duration
        if report.outcome != "passed":
            one["outcome"] = report.outcome

    def pytest_sessionfinish(self) -> None:
        save("promises", {**(saved("promises") or {}), **self._found})


def write_block(name: str, text: str) -> None:
    """Replace what stands between the comments `begin NAME` and `end NAME`."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    document = DOCUMENT.read_text(encoding="utf-8")
    if begin not in document or end not in document:
        raise SystemExit(f"{DOCUMENT} has no block {name}: put '{begin}' and '{end}' where its table is to stand.")
    before, _, rest = document.partition(begin)
    DOCUMENT.write_text(f"{before}{begin}\n{text.strip()}\n{end}{rest.partition(end)[2]}", encoding="utf-8")


def crash_matrix(kept: dict[str, Any]) -> str:
    """A row for each call, in the order in which the operation makes them."""
    found: list[dict[str, Any]] = kept["outcomes"]
    struck = [one for one in found if one["outcome"] != "not reached"]
    right = sum(one["outcome"] == "as without a fault" for one in struck)
    tried = f"{len(found)} of {kept['possible']} places were tried: {len(struck)} kills"
    missed = f"In {len(found) - len(struck)} cases the call was not made that time."
    lines = [
        f"{tried}, {right} ended as without a fault, {len(struck) - right} did not. {missed}",
        "",
        "| operation | activity | at the call | killed before its effect | killed after its effect |",
        "|---|---|---|---|---|",
    ]
    rows: dict[tuple[str, str, str], dict[bool, str]] = {}
    for one in found:
        rows.setdefault((one["operation"], one["activity"], one["call"]), {})[one["after"]] = _outcome(one)
    for (operation, activity, call), cells in rows.items():
        lines.append(f"| {operation} | {activity} | `{call}` | {cells.get(False, '')} | {cells.get(True, '')} |")
    return "\n".join(lines)


def faults(found: dict[str, int]) -> str:
    missed = found["tried"] - found["struck"]
    return (
        f"{found['tried']} of {found['possible']} cases (an activity, a call of it, a fault) were tried."
        f" In {missed} the call was not made that time; the other {found['struck']} ended as without a fault."
    )


def promises(found: dict[str, dict[str, Any]]) -> str:
    """A row for each promise: its tests, how many runs of them, and what came out."""
    lines = ["| promise | runs | passed | failed | skipped | seconds |", "|---|---|---|---|---|---|"]
    for number, title, tests in mapped():
        runs = [run for name, run in found.items() if name.partition("[")[0] in tests]
        count = {outcome: sum(run["outcome"] == outcome for run in runs) for outcome in ("passed", "failed", "skipped")}
        seconds = sum(run["seconds"] for run in runs)
        lines.append(f"| {number}. {title} | {len(runs)} | {' | '.join(map(str, count.values()))} | {seconds:.0f} |")
    return "\n".join(lines)


def mutations(rows: list[tuple[Mutation, dict[str, Any] | None]]) -> str:
    """A row for each mistake: found, and how; not found; or not tried."""
    found = sum(row is not None and row["found"] for _, row in rows)
    never = sum(row is None for _, row in rows)
    lines = [
        f"{found} of {len(rows)} mistakes were found, {len(rows) - found - never} were not, {never} were not tried.",
        "",
        "| promise | the mistake | in | the test | what it said | on | at |",
        "|---|---|---|---|---|---|---|",
    ]
    for mutation, row in rows:
        what = f"| {mutation.promise} | {mutation.mistake} | `{mutation.file}` | `{mutation.test}` "
        if row is None:
            lines.append(f"{what}| **not tried** | | |")
            continue
        by = re.sub(r"\s+", " ", row["by"]).replace("|", "\\|").replace("`", "'")[:90]
        # What was found before the words were kept has none.
        word = (f"`{by}`" if by else "it failed") if row["found"] else f"**not found**: `{by}`"
        lines.append(f"{what}| {word} | {row['date']} | {row['commit'] or 'before'} |")
    return "\n".join(lines)


BLOCKS: dict[str, Callable[[Any], str]] = {
    "crash-matrix": crash_matrix,
    "runner-kills": crash_matrix,
    "faults": faults,
    "promises": promises,
}


def mapped() -> Iterable[tuple[int, str, list[str]]]:
    """tests/PROMISES.md: number, words and test ids."""
    text = (Path(__file__).parent / "PROMISES.md").read_text(encoding="utf-8")
    for section in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        heading, _, body = section.partition("\n")
        number, _, title = heading.partition(". ")
        yield int(number), title, re.findall(r"^- `([^`]+)`$", body, flags=re.MULTILINE)


def _outcome(one: dict[str, Any]) -> str:
    attempts = f", {one['attempts']} attempts" if (one["attempts"] or 0) > 1 else ""
    return f"{one['outcome']}{attempts}"


def main(folder: Path) -> None:
    for name, render in BLOCKS.items():
        path = folder / f"{name}.json"
        if path.exists():
            kept = json.loads(path.read_text(encoding="utf-8"))
            write_block(name, f"Generated by a run on {kept['date']}.\n\n{render(kept['found'])}")
    # Here, because it writes its block with what is above.
    from tests.archive import kill_table

    kill_table.write(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
