"""Looks at a tar stream while it passes: counts entries, leaves devices out, and knows whether it really ended.

Only headers are looked at, so it costs little whatever the size. A stream that breaks off has no end-of-archive
marker (two zero blocks where a header would be), and then `finish` says so: it never becomes an archive.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

_BLOCK = 512
_ZERO = bytes(_BLOCK)
_EXTENSIONS = frozenset(b"xgLK")
"""Entries that describe the one after them."""
_DEVICES = frozenset(b"34")
_FILES = frozenset(b"017S\0")
"""Regular files, however they are stored, and hard links, each of which is a name of one."""
_LINK = ord("1")
_OLD_SPARSE = ord("S")
_WITHOUT_DATA = frozenset(b"12356")
_LONGEST_EXTENSION = 8 * 1024 * 1024
_LONGEST_NUMBER = 20
"""Digits: 2 to the 64th has as many."""


class TarBroken(Exception):
    """The stream is no complete tar."""


@dataclass(slots=True)
class _Said:
    """What extension headers say of the entry after them."""

    size: int | None = None
    path: bytes | None = None
    link: bytes | None = None


@dataclass(slots=True)
class _Cursor:
    """A walk over the bytes at hand."""

    data: bytes
    position: int = 0
    passed: int = 0
    held: int | None = None
    """Where the extension headers of the next entry begin: they go on, or are left out, together with it."""
    said: _Said = field(default_factory=_Said)
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
    files: int = 0
    """Of the entries, regular files and hard links: what a person calls files."""
    devices: int = 0
    longest_path: int = 0
    """Bytes. Not every path that a home can hold can be extracted again."""
    ended: bool = False
    _carry: bytes = b""
    _payload: int = 0
    _map_follows: bool = False
    _zeros: int = 0
    _left_out: set[bytes] = field(default_factory=set)

    def feed(self, chunk: bytes) -> bytes:
        """Take the next piece of the stream; return what goes on."""
        if self.ended:
            return chunk
        cursor = _Cursor(self._carry + chunk if self._carry else chunk)
        end = len(cursor.data)
        while cursor.position < end and self._advance(cursor):
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
        position = cursor.position
        left = len(cursor.data) - position
        if self._payload and not self._map_follows:
            taken = min(self._payload, left)
            self._payload -= taken
            cursor.position = position + taken
            return True
        if left < _BLOCK:
            return False
        header = cursor.data[position : position + _BLOCK]
        if self._map_follows:
            self._map_follows = header[504] != 0
            cursor.position += _BLOCK
            return True
        if header == _ZERO:
            return self._end_marker(cursor)
        if self._zeros:
            raise TarBroken("a tar header follows its end marker")
        kind, size = header[156], _number(header[124:136])
        if kind == ord("g") and cursor.held is None:
            # It describes all that follows: it goes on, whatever comes next.
            cursor.position += _BLOCK
            self._payload = _padded(size)
            return True
        if kind in _EXTENSIONS:
            return _extension(cursor, kind, size)
        self._entry(cursor, header, kind, size)
        return True

    def _end_marker(self, cursor: _Cursor) -> bool:
        cursor.position += _BLOCK
        self._zeros += 1
        if self._zeros == 2:
            self.ended = True
            # What follows pads the last record.
            cursor.position = len(cursor.data)
        return True

    def _entry(self, cursor: _Cursor, header: bytes, kind: int, size: int) -> None:
        start, said = cursor.entry_start, cursor.said
        cursor.position, cursor.held, cursor.said = cursor.position + _BLOCK, None, _Said()
        path = _name(header) if said.path is None else said.path
        if kind in _DEVICES or (kind == _LINK and self._is_left_out(header, said)):
            # A hard link to what is not there could not be extracted: the whole home would be refused for it.
            self.devices += 1
            self._left_out.add(path)
            cursor.out.append(cursor.data[cursor.passed : start])
            cursor.passed = cursor.position
            return
        self.entries += 1
        # The oldest format knows directories by their names only.
        self.files += kind in _FILES and not path.endswith(b"/")
        self.longest_path = max(self.longest_path, len(path))
        if kind not in _WITHOUT_DATA:
            self._payload = _padded(size if said.size is None else said.size)
            self._map_follows = kind == _OLD_SPARSE and header[482] != 0

    def _is_left_out(self, header: bytes, said: _Said) -> bool:
        return bool(self._left_out) and (said.link or _text(header[157:257])) in self._left_out


def _extension(cursor: _Cursor, kind: int, size: int) -> bool:
    whole = _BLOCK + _padded(size)
    if whole > _LONGEST_EXTENSION:
        raise TarBroken("a tar extension header is too long")
    if cursor.left < whole:
        return False
    body = cursor.data[cursor.position + _BLOCK : cursor.position + _BLOCK + size]
    match kind:
        case 0x4C:  # L
            cursor.said.path = _text(body)
        case 0x4B:  # K
            cursor.said.link = _text(body)
        case 0x78:  # x
            for key, value in _records(body):
                _say(cursor.said, key, value)
    cursor.held = cursor.entry_start
    cursor.position += whole
    return True


def _say(said: _Said, key: bytes, value: bytes) -> None:
    match key:
        case b"size":
            # For entries that are too large for the plain field.
            if not value.isdigit() or len(value) > _LONGEST_NUMBER:
                raise TarBroken("a pax header holds no size")
            said.size = int(value)
        case b"path":
            said.path = value
        case b"linkpath":
            said.link = value


def _records(body: bytes) -> Iterator[tuple[bytes, bytes]]:
    position = 0
    while position < len(body):
        digits, space, _ = body[position : position + _LONGEST_NUMBER].partition(b" ")
        length = int(digits) if space and digits.isdigit() else 0
        # Its own digits, a space, an equals sign and a newline are the least.
        if length < len(digits) + 3 or position + length > len(body):
            raise TarBroken("a pax header can't be read")
        key, _, value = body[position + len(digits) + 1 : position + length - 1].partition(b"=")
        yield key, value
        position += length


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _number(digits: bytes) -> int:
    if digits[0] == 0x80:
        return int.from_bytes(digits[1:], "big")
    digits = digits.strip(b" \0") or b"0"
    if not digits.isdigit() or not digits.isascii():
        raise TarBroken("a tar header holds no size")
    try:
        return int(digits, 8)
    except ValueError as error:
        raise TarBroken("a tar header holds no size") from error


def _name(header: bytes) -> bytes:
    prefix = _text(header[345:500]) if header[257:263] == b"ustar\0" else b""
    return prefix + b"/" + _text(header[:100]) if prefix else _text(header[:100])


def _text(body: bytes) -> bytes:
    return body.partition(b"\0")[0]
