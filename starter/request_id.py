"""The id by which the lines of one request are found, in the API and in the proxy."""

import re
from uuid import uuid4

# Nothing that could end a line, of a log or of a head.
_WELL_FORMED = re.compile(r"[A-Za-z0-9._-]{1,64}")


def request_id(given: str) -> str:
    """The one that a client sends as X-Request-Id, if it is well-formed; else a new one."""
    return given if _WELL_FORMED.fullmatch(given) else uuid4().hex
