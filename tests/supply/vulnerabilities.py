"""`python -m tests.supply.vulnerabilities`: does the lock file hold a version with a known vulnerability?

Asks PyPI, by pip-audit, for all packages at once and for a few seconds at most. Without an answer nothing is known, so
nothing fails: the message says so. A finding fails, unless IGNORED names it and why.
"""

import os
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path

LOCK = Path(__file__).parents[2] / "uv.lock"
IGNORED: Mapping[str, str] = {}
"""Identifiers of findings that don't concern us, each with the reason."""
SECONDS = 6.0


Feed = Callable[[str, str], list[str] | None]
"""Of a name and a version: its findings, or None when the feed does not know it."""


def main(feed: Feed, packages: Iterable[tuple[str, str]], seconds: float = SECONDS) -> int:
    wanted = list(packages)
    pool = ThreadPoolExecutor(16, thread_name_prefix="audit")
    asked = {pool.submit(feed, name, version): f"{name} {version}" for name, version in wanted}
    answered, found = _collect(asked, seconds)
    pool.shutdown(wait=False, cancel_futures=True)
    for line in found:
        _say(line)
    if found:
        _say("Known vulnerabilities in uv.lock: upgrade (uv lock --upgrade-package NAME), or say in IGNORED why not.")
        return 1
    if answered < len(wanted):
        _say(f"Vulnerabilities: PyPI answered for {answered} of {len(wanted)} packages; the others are not checked.")
    else:
        _say(f"Vulnerabilities: none known in {answered} packages.")
    return 0


def locked(lock: Path = LOCK) -> Iterator[tuple[str, str]]:
    for package in tomllib.loads(lock.read_text())["package"]:
        if "registry" in package["source"]:
            yield package["name"], package["version"]


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _collect(asked: "Mapping[Future[list[str] | None], str]", seconds: float) -> tuple[int, list[str]]:
    answered, found = 0, []
    try:
        for done in as_completed(asked, timeout=seconds):
            if done.exception() is not None:
                continue
            findings = done.result()
            if findings is not None:
                answered += 1
                found += [f"{asked[done]}: {one}" for one in findings if one.split(" ", 1)[0] not in IGNORED]
    except TimeoutError:
        pass
    return answered, sorted(found)


def pypi(name: str, version: str) -> list[str] | None:
    from packaging.version import Version
    from pip_audit._service import PyPIService, ResolvedDependency  # type: ignore[import-untyped]

    dependency, results = PyPIService(timeout=3).query(ResolvedDependency(name, Version(version)))
    if dependency.is_skipped():
        return None
    return [f"{one.id} ({', '.join(sorted(one.aliases))})" for one in results]


if __name__ == "__main__":
    code = main(pypi, locked())
    sys.stdout.flush()
    # Threads that still wait for an answer are not waited for.
    os._exit(code)
