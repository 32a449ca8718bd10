"""Where a body ends. `take` splits what came into the body's bytes, what belongs to the next message, and whether
this was the end. Nothing is kept but a line that is not complete yet.
"""

import re

_LARGEST_LINE = 4096
_LARGEST_TRAILERS = 16 * 1024
# An extension is read over; it is not passed on.
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?")

Taken = tuple[bytes, bytes, bool]


class BadBody(Exception):
    """The chunks are not chunks."""


class Length:
    __slots__ = ("left", "length")

    def __init__(self, length: int) -> None:
        self.length = self.left = length

    def take(self, data: bytes) -> Taken:
        size = len(data)
        if size <= self.left:
            self.left -= size
            return data, b"", not self.left
        left, self.left = self.left, 0
        return data[:left], data[left:], True


class UntilClose:
    __slots__ = ()

    def take(self, data: bytes) -> Taken:
        return data, b"", False


class Chunks:
    """`trailers` are the raw lines that came after the last chunk, once that was taken."""

    __slots__ = ("_ending", "_left", "_line", "_trailers", "trailers")

    def __init__(self) -> None:
        self._left = 0
        # Whether the line end after a chunk's data is still to come.
        self._ending = False
        self._line = b""
        self._trailers: list[bytes] | None = None
        self.trailers = b""

    def take(self, data: bytes) -> Taken:
        """Raises BadBody."""
        pieces: list[bytes] = []
        at, size = 0, len(data)
        while at < size:
            if self._left:
                piece = data[at : at + self._left]
                pieces.append(piece)
                at += len(piece)
                self._left -= len(piece)
                self._ending = not self._left
                continue
            line, at = self._take_line(data, at)
            if line is None:
                break
            if self._trailers is not None:
                if not line:
                    self.trailers = b"\r\n".join(self._trailers)
                    return b"".join(pieces), data[at:], True
                self._add_trailer(line)
            elif self._ending:
                if line:
                    raise BadBody("A chunk is longer than its size.")
                self._ending = False
            else:
                self._begin(line)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces), b"", False

    def _take_line(self, data: bytes, at: int) -> tuple[bytes | None, int]:
        """A complete line without its end, and where the next one begins; None and the rest is kept."""
        end = data.find(b"\n", at)
        if end < 0:
            self._line += data[at:]
            if len(self._line) > _LARGEST_LINE:
                raise BadBody("A line is too long.")
            return None, len(data)
        line = self._line + data[at:end]
        self._line = b""
        if not line.endswith(b"\r") or len(line) > _LARGEST_LINE:
            raise BadBody("A line does not end with CR LF.")
        return line[:-1], end + 1

    def _begin(self, line: bytes) -> None:
        found = _SIZE.fullmatch(line)
        if found is None:
            raise BadBody("A chunk's size is not one.")
        self._left = int(found[1], 16)
        if not self._left:
            self._trailers = []

    def _add_trailer(self, line: bytes) -> None:
        if self._trailers is None:
            raise AssertionError("trailers come after the last chunk")
        self._trailers.append(line)
        if sum(map(len, self._trailers)) > _LARGEST_TRAILERS:
            raise BadBody("The trailers are too long.")


Body = Length | Chunks | UntilClose
