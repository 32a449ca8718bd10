"""`make bench`: all of them, or those named on the command line."""

import asyncio
import sys
from pathlib import Path

from bench import archive, transitions
from bench.installation import installed
from bench.row import Row, save, show

SUITES = {"transitions": transitions.run, "archive": archive.run}
RESULTS = Path(".cache/bench.json")


async def main(names: list[str]) -> None:
    rows: list[Row] = []
    async with installed() as installation:
        for name in names:
            print(f"— {name}")
            rows += await SUITES[name](installation)
    show(rows)
    save(rows, RESULTS)
    print(f"also in {RESULTS}")


if __name__ == "__main__":
    chosen = sys.argv[1:] or list(SUITES)
    if unknown := set(chosen) - SUITES.keys():
        sys.exit(f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    asyncio.run(main(chosen))
