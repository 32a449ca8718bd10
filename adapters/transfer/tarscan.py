"""Looks at a tar stream while it passes: counts entries, leaves devices out, and knows whether it really ended.

Only headers are looked at, so it costs little whatever the size. A stream that breaks off has no end-of-archive
marker (two zero blocks where a header would be), and then `finish` says so: it never becomes an archive.
"""

from dataclasses import dataclass, field

_BLOCK = 512
_ZERO = bytes(_BLOCK)
_EXTENSIONS = frozenset(b"xgLK")
"""Entries that describe the one after them."""
_DEVICES = frozenset(b"34")
_WITHOUT_DATA = frozenset(b"12356")
_LONGEST_EXTENSION = 8 * 1024 * 1024


class TarBroken(Exception):
    """The stream is no complete tar."""


@dataclass(slots=True)
class _Cursor:
    """A walk over the bytes at hand."""

    data: bytes
    position: int = 0
    passed: int = 0
    held: int | None = None
    """Where the extension headers of the next entry begin: they go on, or are left out, together with it."""
    size_of_next: int | None = None
    out: list[bytes] = field(default_factory=list)

    @property
    def left(self) -> int:
        return len(self.data) - self.position

    @property
    def entry_start(self) -> int:
        return self.position if self.held is None else self.held


@dataclass(slots=True)
class TarScanner:
    entries: int = 0
    devices: int = 0
    ended: bool = False
    _carry: bytes = b""
    _payload: int = 0
    _zeros: int = 0

    def feed(self, chunk: bytes) -> bytes:
        """Take the next piece of the stream; return what goes on."""
        if self.ended:
            return chunk
        cursor = _Cursor(self._carry + chunk if self._carry else chunk)
        while cursor.left and self._advance(cursor):
            pass
        kept = cursor.entry_start
        cursor.out.append(cursor.data[cursor.passed : kept])
        self._carry = cursor.data[kept:]
        return b"".join(cursor.out)

    def finish(self) -> None:
        if not self.ended:
            raise TarBroken("the tar stream ended without its end-of-archive marker")

    def _advance(self, cursor: _Cursor) -> bool:
        """Go over one thing; False when more bytes are needed to know it."""
        if self._payload:
            taken = min(self._payload, cursor.left)
            self._payload -= taken
            cursor.position += taken
            return True
        if cursor.left < _BLOCK:
            return False
        header = cursor.data[cursor.position : cursor.position + _BLOCK]
        if header == _ZERO:
            return self._end_marker(cursor)
        if self._zeros:
            raise TarBroken("a tar header follows its end marker")
        kind, size = header[156], _number(header[124:136])
        if kind in _EXTENSIONS:
            return _extension(cursor, kind, size)
        self._entry(cursor, kind, size)
        return True

    def _end_marker(self, cursor: _Cursor) -> bool:
        cursor.position += _BLOCK
        self._zeros += 1
        if self._zeros == 2:
            self.ended = True
            # What follows pads the last record.
            cursor.position = len(cursor.data)
        return True

    def _entry(self, cursor: _Cursor, kind: int, size: int) -> None:
        start, cursor.position = cursor.entry_start, cursor.position + _BLOCK
        if kind in _DEVICES:
            self.devices += 1
            cursor.out.append(cursor.data[cursor.passed : start])
            cursor.passed = cursor.position
        else:
            self.entries += 1
            if kind not in _WITHOUT_DATA:
                self._payload = _padded(size if cursor.size_of_next is None else cursor.size_of_next)
        cursor.held = cursor.size_of_next = None


def _extension(cursor: _Cursor, kind: int, size: int) -> bool:
    whole = _BLOCK + _padded(size)
    if whole > _LONGEST_EXTENSION:
        raise TarBroken("a tar extension header is too long")
    if cursor.left < whole:
        return False
    if kind == ord("x"):
        start = cursor.position + _BLOCK
        cursor.size_of_next = _pax_size(cursor.data[start : start + size])
    cursor.held = cursor.entry_start
    cursor.position += whole
    return True


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _number(field: bytes) -> int:
    if field[0] & 0x80:
        return int.from_bytes(bytes([field[0] & 0x7F]) + field[1:], "big")
    digits = field.strip(b" \0")
    try:
        return int(digits, 8) if digits else 0
    except ValueError as error:
        raise TarBroken("a tar header holds no size") from error


def _pax_size(records: bytes) -> int | None:
    """`size`, for entries that are too large for the plain field."""
    position = 0
    found = None
    while position < len(records):
        space = records.find(b" ", position)
        if space < 0:
            break
        try:
            length = int(records[position:space])
        except ValueError as error:
            raise TarBroken("a pax header can't be read") from error
        if length <= 0:
            raise TarBroken("a pax header can't be read")
        key, _, value = records[space + 1 : position + length - 1].partition(b"=")
        if key == b"size":
            found = int(value)
        position += length
    return found
