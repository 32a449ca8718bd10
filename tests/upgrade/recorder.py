"""Records the SQL of a version, so that later schemas can be checked against it.

Before a release: `pytest -n0 -p tests.upgrade.recorder tests/audit tests/api tests/activities tests/events
tests/coordinator tests/nodes/test_placement.py tests/integration`. What `adapters/postgres` holds of it becomes
`statements/{number of its last migration}.json`, beside what an earlier part of the recording put there.
"""

import atexit
import json
import re
from pathlib import Path
from typing import Any

import asyncpg

ROOT = Path(__file__).parents[2]
STATEMENTS = Path(__file__).parent / "statements"
_NO_QUERY = re.compile(r"(CREATE|DROP|LISTEN|BEGIN|COMMIT|ROLLBACK|ALTER|SET|RESET|UNLISTEN|--)")

_seen: set[str] = set()


def _recording(method: Any) -> Any:
    async def recorded(self: Any, query: str, *args: Any, **options: Any) -> Any:
        _seen.add(" ".join(query.split()))
        return await method(self, query, *args, **options)

    return recorded


def _keep() -> None:
    code = " ".join(re.sub(r'["\s]+', " ", path.read_text()) for path in (ROOT / "adapters" / "postgres").glob("*.py"))
    ours = {text for text in _seen if not _NO_QUERY.match(text) and text[:30].replace('"', " ") in code}
    latest = max(path.name for path in (ROOT / "adapters" / "postgres" / "migrations").glob("*.sql"))
    target = STATEMENTS / f"{latest[:4]}.json"
    if target.exists():
        ours |= set(json.loads(target.read_text()))
    target.write_text(json.dumps(sorted(ours), indent=1) + "\n")


def pytest_configure() -> None:
    asyncpg.Connection.execute = _recording(asyncpg.Connection.execute)  # type: ignore[method-assign]
    asyncpg.Connection._execute = _recording(asyncpg.Connection._execute)  # type: ignore[attr-defined]
    atexit.register(_keep)
