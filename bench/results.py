"""The last of each part as JSON: a run of some parts leaves the others' as they were, with their own date."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.part import Part

ORDER = ("transitions", "archive", "events", "tables", "scale", "proxy", "restarts", "nodes", "growth")
"""Of the tables."""


@dataclass(frozen=True)
class Results:
    path: Path

    def load(self) -> dict[str, Part]:
        """In the order of the table; empty where nothing was measured yet."""
        try:
            parts = json.loads(self.path.read_text())["parts"]
        except FileNotFoundError:
            return {}
        return {name: Part.from_json(name, parts[name]) for name in ORDER if name in parts}

    def keep(self, part: Part) -> None:
        """Beside what is there. Written beside the file first: whoever ends the run at that moment loses nothing."""
        self.write(self.load() | {part.name: part})

    def write(self, parts: Mapping[str, Part]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        body = {"parts": {name: parts[name].as_json() for name in ORDER if name in parts}}
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(body, indent=1, ensure_ascii=False) + "\n")
        new.replace(self.path)
