"""The head of a message: what came, as it came, and only if it can be read in one way.

Requests are read strictly. Whoever reads the same bytes otherwise would see another request (smuggling), so everything
that readers are known to differ about is refused: two lengths, a length and chunks, folded lines, bare CR or LF, spaces
before a colon. Answers come from the workspace whose owner gets them; bare LF and folded lines, which old CGI scripts
send, are put right.
"""

import re
from dataclasses import dataclass

from starter.proxy.body import Body, Chunks, Length, UntilClose

LARGEST_HEAD = 64 * 1024
HEAD_END = b"\r\n\r\n"

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
_TEXT = rb"[\t\x20-\x7e\x80-\xff]"
# Possessive: what does not match is known at once, whatever was sent.
_REQUEST_LINE = re.compile(rb"(%b{1,32}+) ([\x21-\x7e]++) HTTP/1\.([01])" % _TOKEN)
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: (%b*+))?" % _TEXT)
_FIELDS = re.compile(rb"(?:%b++:%b*+\r\n)*+" % (_TOKEN, _TEXT))
_FIELD = re.compile(rb"%b++:%b*+" % (_TOKEN, _TEXT))
_DIGITS = re.compile(rb"[0-9]{1,18}")
_HOST = re.compile(rb"[A-Za-z0-9._~%!$&'()*+,;=:\[\]-]*")
_LENIENT_END = re.compile(rb"\r?\n\r?\n")
_FOLD = re.compile(rb"\r?\n[ \t]+")

_SINGLE = frozenset(
    {b"host", b"content-length", b"transfer-encoding", b"expect", b"upgrade", b"authorization", b"sec-websocket-key"}
)


class BadMessage(Exception):
    """A message that is not HTTP, or not safely. `status` is for the client, when it was the client's."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(slots=True)
class Fields:
    """`lines` are (lower-case name, line as it came); `values` are by lower-case name, repeated ones joined."""

    lines: list[tuple[bytes, bytes]]
    values: dict[bytes, bytes]
    repeated: set[bytes]

    def tokens(self, name: bytes) -> set[bytes]:
        return {token.strip(b" \t").lower() for token in self.values.get(name, b"").split(b",")}


@dataclass(slots=True)
class RequestHead(Fields):
    method: bytes
    target: bytes
    is_http11: bool
    body: Body | None

    @property
    def host(self) -> bytes:
        return self.values.get(b"host", b"")

    @property
    def wants_close(self) -> bool:
        return not self.is_http11 or (b"connection" in self.values and b"close" in self.tokens(b"connection"))

    @property
    def is_websocket(self) -> bool:
        return (
            b"upgrade" in self.values
            and self.is_http11
            and self.method == b"GET"
            and self.values[b"upgrade"].lower() == b"websocket"
            and b"upgrade" in self.tokens(b"connection")
        )


@dataclass(slots=True)
class ResponseHead(Fields):
    status: int
    reason: bytes
    is_http11: bool

    @property
    def keeps_alive(self) -> bool:
        connection = self.tokens(b"connection")
        return b"close" not in connection and (self.is_http11 or b"keep-alive" in connection)


def read_request(raw: bytes) -> RequestHead:
    """`raw` ends with the empty line. Raises BadMessage."""
    first, _, rest = raw.partition(b"\r\n")
    line = _REQUEST_LINE.fullmatch(first)
    if line is None:
        raise BadMessage("The request line is not one.")
    # The end of the head is the end of the first match of all lines, so nothing can hide behind it.
    if _FIELDS.fullmatch(rest, 0, len(rest) - 2) is None:
        raise BadMessage("A header line is not one.")
    lines, values, repeated = _fields(rest[:-4])
    if repeated and not repeated.isdisjoint(_SINGLE):
        raise BadMessage(f"There is more than one {min(repeated & _SINGLE).decode()}.")
    is_http11 = line[3] == b"1"
    host = values.get(b"host")
    if (host is None and is_http11) or (host is not None and _HOST.fullmatch(host) is None):
        raise BadMessage("There is no Host that could be one.")
    body = _request_body(values, is_http11)
    return RequestHead(lines, values, repeated, line[1], line[2], is_http11, body)


def read_response(raw: bytes) -> ResponseHead:
    """Raises BadMessage."""
    first, _, rest = _FOLD.sub(b" ", raw).replace(b"\r\n", b"\n").strip(b"\n").partition(b"\n")
    line = _STATUS_LINE.fullmatch(first)
    if line is None:
        raise BadMessage("The status line is not one.")
    fields = rest.replace(b"\n", b"\r\n")
    if _FIELDS.fullmatch(fields + b"\r\n" if fields else b"") is None:
        raise BadMessage("A header line is not one.")
    return ResponseHead(*_fields(fields), int(line[2]), line[3] or b"", line[1] == b"1")


def response_end(data: bytes) -> int:
    """Where the head of an answer ends; -1 while it has not."""
    end = data.find(HEAD_END)
    if end >= 0 and data.find(b"\n\n", 0, end) < 0:
        return end + 4
    found = _LENIENT_END.search(data)
    return found.end() if found else -1


def response_body(head: ResponseHead, method: bytes) -> Body | None:
    """None: there is none, whatever the head says. Raises BadMessage."""
    if method == b"HEAD" or head.status in {204, 304} or head.status < 200:
        return None
    coding = head.values.get(b"transfer-encoding")
    if coding is not None:
        if coding.lower() != b"chunked":
            raise BadMessage("The answer's transfer coding is not understood.")
        return Chunks()
    declared = head.values.get(b"content-length")
    if declared is None:
        return UntilClose()
    # Repeated, but the same: some servers do.
    lengths = {length.strip(b" \t") for length in declared.split(b",")}
    length = lengths.pop()
    if lengths or not _DIGITS.fullmatch(length):
        raise BadMessage("The answer's Content-Length is not one.")
    return Length(int(length)) if int(length) else None


def field_lines(raw: bytes) -> list[tuple[bytes, bytes]]:
    """Of trailers. Raises BadMessage."""
    lines = raw.split(b"\r\n") if raw else []
    if any(_FIELD.fullmatch(line) is None for line in lines):
        raise BadMessage("A trailer line is not one.")
    return [(line.partition(b":")[0].lower(), line) for line in lines]


def _fields(block: bytes) -> tuple[list[tuple[bytes, bytes]], dict[bytes, bytes], set[bytes]]:
    lines: list[tuple[bytes, bytes]] = []
    values: dict[bytes, bytes] = {}
    repeated: set[bytes] = set()
    if not block:
        return lines, values, repeated
    for line in block.split(b"\r\n"):
        name, _, value = line.partition(b":")
        name = name.lower()
        lines.append((name, line))
        value = value.strip(b" \t")
        if name in values:
            repeated.add(name)
            value = values[name] + (b"; " if name == b"cookie" else b", ") + value
        values[name] = value
    return lines, values, repeated


def _request_body(values: dict[bytes, bytes], is_http11: bool) -> Body | None:
    coding = values.get(b"transfer-encoding")
    declared = values.get(b"content-length")
    if coding is not None:
        if declared is not None or not is_http11:
            raise BadMessage("The length of the body is given in two ways.")
        if coding.lower() != b"chunked":
            raise BadMessage("The transfer coding is not understood.", 501)
        return Chunks()
    if declared is None:
        return None
    if not _DIGITS.fullmatch(declared):
        raise BadMessage("Content-Length is not a length.")
    return Length(int(declared)) if int(declared) else None
