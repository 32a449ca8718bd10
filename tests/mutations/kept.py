"""What the runs of `python -m tests.mutations` found, one sitting after the other: beside the table, in found.json."""

import hashlib
import json
from pathlib import Path
from typing import Any

from tests.mutations.table import MUTATIONS, Mutation

FOUND = Path(__file__).with_name("found.json")

Row = dict[str, Any]


def fingerprint(mutation: Mutation) -> str:
    """What was found of another mistake, or by another test, says nothing of this one."""
    parts = (mutation.file, mutation.old, mutation.new, mutation.test)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def rows(found: Path = FOUND) -> list[tuple[Mutation, Row | None]]:
    """Each mistake of the table, and what the last run with it came to; None where there was none."""
    known = {row["mutation"]: row for row in json.loads(found.read_text(encoding="utf-8"))} if found.exists() else {}
    return [(mutation, known.get(fingerprint(mutation))) for mutation in MUTATIONS]


def keep(mutation: Mutation, row: Row, found: Path = FOUND) -> None:
    """At once, and in the order of the table; what is not in the table any more goes."""
    kept = [row if one is mutation else former for one, former in rows(found)]
    text = json.dumps([one for one in kept if one is not None], indent=1, ensure_ascii=False)
    found.write_text(f"{text}\n", encoding="utf-8")
