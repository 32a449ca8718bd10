"""`make bench`: all of them, or those named on the command line."""

import argparse
import asyncio
import logging
import sys
from pathlib import Path

import structlog

from bench.report import Report
from bench.results import ORDER, Results
from bench.run import Run
from bench.sizes import PLAIN, TINY

RESULTS = Path(".cache/bench.json")
TRIED = Path(".cache/bench-tiny.json")
MINUTES = 15.0
MORE = ("restarts", "nodes", "growth")
"""Parts for which there is no time beside the others."""
EPILOG = f"""
Each part is kept in {RESULTS} as soon as it has ended, beside the last of the others: a long run can be made in
pieces. The exit code is 1 where anything could not be measured; goals that are not met are not that.
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__, epilog=EPILOG)
    parser.add_argument("names", nargs="*", choices=[*ORDER, []], metavar="part", help=_help())
    parser.add_argument("--docs", type=Path, help="also write them there, e.g. docs/performance.md")
    parser.add_argument(
        "--minutes", type=float, default=MINUTES, help=f"what has not ended by then is not measured ({MINUTES:g})"
    )
    much = parser.add_mutually_exclusive_group()
    much.add_argument(
        "--full",
        action="store_true",
        help=f"also those for which there is no time beside the others, which is not limited then: {', '.join(MORE)}",
    )
    much.add_argument("--tiny", action="store_true", help=f"to try the benchmarks themselves; kept in {TRIED}")
    given = parser.parse_args()
    if given.tiny and given.docs:
        parser.error("figures of --tiny mean nothing: they are not for --docs")
    # The table is what is to be read.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    sizes = TINY if given.tiny else PLAIN
    run = Run(
        sizes,
        Results(TRIED if given.tiny else RESULTS),
        Report(given.docs) if given.docs else None,
        None if given.full else given.minutes * 60,
    )
    whole = asyncio.run(run.parts(given.names or [name for name in ORDER if given.full or name not in MORE]))
    return 0 if whole else 1


def _help() -> str:
    return f"{', '.join(name for name in ORDER if name not in MORE)}; and if they are named: {', '.join(MORE)}"


if __name__ == "__main__":
    sys.exit(main())
