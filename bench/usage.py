"""What processes use: CPU seconds and memory of each with all its children, from /proc."""

import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Usage:
    cpu_seconds: float
    memory_bytes: int


def usage(roots: Mapping[str, int]) -> dict[str, Usage]:
    """Of the process trees with these roots. Memory counts shared pages once per process, so it is a bound."""
    stats = _stats()
    children: dict[int, list[int]] = defaultdict(list)
    for pid, (parent, _, _) in stats.items():
        children[parent].append(pid)
    found: dict[str, Usage] = {}
    for name, root in roots.items():
        waiting, cpu, memory = [root], 0.0, 0
        while waiting:
            pid = waiting.pop()
            waiting += children[pid]
            _, seconds, resident = stats.get(pid, (0, 0.0, 0))
            cpu, memory = cpu + seconds, memory + resident
        found[name] = Usage(cpu, memory)
    return found


def _stats() -> dict[int, tuple[int, float, int]]:
    found: dict[int, tuple[int, float, int]] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        # With those of children that ended: PostgreSQL's come and go.
        ticks = sum(int(fields[number]) for number in (11, 12, 13, 14))
        found[int(folder.name)] = (int(fields[1]), ticks / _TICKS, int(fields[21]) * _PAGE)
    return found
