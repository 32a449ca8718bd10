"""`.meta`: what an older codehub wrote stays readable, and what this one writes an older one can read."""

import json

from domain.archive import read_meta
from domain.model import OperationId, WorkspaceId
from domain.naming import archive_key

WS, OP = WorkspaceId("00000000-0000-0000-0000-000000000001"), OperationId("00000000-0000-0000-0000-000000000002")
KEY = archive_key(WS, OP)
FIRST = {
    "format_version": 1,
    "workspace_id": WS,
    "archive_op_id": OP,
    "sha256": "0" * 64,
    "size": 5,
    "raw_size": 10240,
    "entries": 3,
    "left_out": {"sockets": 0, "devices": 1},
    "codehub_version": "0.1.0",
    "created_at": "2026-01-01T00:00:00Z",
}
"""As the first version wrote it: `files` was not counted, and sockets that nobody had counted were 0."""


def test_what_the_first_version_wrote_is_read() -> None:
    meta = read_meta(json.dumps(FIRST).encode(), WS, KEY)
    assert (meta.entries, meta.files, meta.left_out) == (3, None, {"sockets": 0, "devices": 1})
    assert meta.summary["files"] is None


def test_what_is_written_is_what_is_read() -> None:
    """Whatever was counted, and with nothing in `left_out` that the first version would refuse."""
    meta = read_meta(json.dumps(FIRST | {"files": 2, "left_out": {"devices": 1}}).encode(), WS, KEY)
    assert read_meta(meta.model_dump_json().encode(), WS, KEY) == meta
    assert (meta.files, meta.summary["files"], meta.left_out) == (2, 2, {"devices": 1})
