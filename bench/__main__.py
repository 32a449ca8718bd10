"""`make bench`: all of them, or those named on the command line."""

import argparse
import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench import archive, events, proxy, scale, tables, transitions
from bench.growth import Growth
from bench.installation import Installation, Simulation, installed, simulated
from bench.report import Report
from bench.row import Row, save, show

ON_AN_ENGINE: dict[str, Callable[[Installation], Awaitable[list[Row]]]] = {
    "transitions": transitions.run,
    "archive": archive.run,
}
IN_MEMORY: dict[str, Callable[[Simulation, Growth], Awaitable[list[Row]]]] = {
    "events": events.run,
    "tables": tables.run,
    "scale": scale.run,
}
ALONE: dict[str, Callable[[], Awaitable[list[Row]]]] = {"proxy": proxy.run}
NAMES = [*ON_AN_ENGINE, *IN_MEMORY, *ALONE]
RESULTS = Path(".cache/bench.json")


async def main(names: list[str], docs: Path | None) -> None:
    began, growth = time.monotonic(), Growth()
    rows: list[Row] = []
    if chosen := [name for name in ON_AN_ENGINE if name in names]:
        async with installed() as installation:
            for name in chosen:
                rows += await _told(name, ON_AN_ENGINE[name](installation))
    if chosen := [name for name in IN_MEMORY if name in names]:
        async with simulated() as simulation:
            for name in chosen:
                rows += await _told(name, IN_MEMORY[name](simulation, growth))
    for name in [name for name in ALONE if name in names]:
        rows += await _told(name, ALONE[name]())
    show(rows)
    save(rows, RESULTS)
    print(f"{time.monotonic() - began:.0f} s; also in {RESULTS}")
    if docs:
        command = "make bench" if names == NAMES else f"python -m bench {' '.join(names)}"
        Report(rows, growth, time.monotonic() - began, command).write(docs)
        print(f"and in {docs}")


async def _told(name: str, work: Awaitable[list[Row]]) -> list[Row]:
    print(f"— {name}", flush=True)
    rows = await work
    show(rows)
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], metavar="name", help=", ".join(NAMES))
    parser.add_argument("--docs", type=Path, help="also write them there, e.g. docs/performance.md")
    parser.add_argument("--full", action="store_true", help="also what takes minutes: archives of 2 and 5 GB")
    given = parser.parse_args()
    if given.full:
        os.environ[archive.FULL] = "1"
    asyncio.run(main(given.names or NAMES, given.docs))
