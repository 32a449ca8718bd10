"""From an archive's bytes back to the tar stream of the home, checked on the way."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO, cast

import zstandard

from adapters.transfer.tarscan import TarBroken, TarScanner
from domain.archive import ArchiveMeta
from domain.errors import ArchiveCorrupted

_OUTPUT = 1024 * 1024
_WINDOW = 2**27


@dataclass(slots=True)
class Unpacked:
    """What came out so far."""

    raw_size: int = 0
    size: int = 0
    scanner: TarScanner = field(default_factory=TarScanner)
    digest: "hashlib._Hash" = field(default_factory=hashlib.sha256)
    whole: bool = False
    """It was read to its end, and every byte was the one that was archived."""


def unpack(source: Iterable[bytes], meta: ArchiveMeta, unpacked: Unpacked) -> Iterator[bytes]:
    """The tar stream. It ends without an error only if every byte was the one that was archived."""
    counted = _Counted(iter(source), meta, unpacked)
    # Output is bounded, not input: a few bytes of archive can hold gigabytes of zeros.
    reader = zstandard.ZstdDecompressor(max_window_size=_WINDOW).stream_reader(cast("IO[bytes]", counted))
    try:
        while raw := reader.read(_OUTPUT):
            unpacked.raw_size += len(raw)
            if unpacked.raw_size > meta.raw_size:
                # Its checksum would tell in the end, but by then a bomb has filled the disk.
                raise ArchiveCorrupted(f"the archive holds more than the {meta.raw_size} bytes of tar that were stored")
            yield unpacked.scanner.feed(raw)
        counted.drain()
        _check(meta, unpacked)
        unpacked.whole = True
    except (zstandard.ZstdError, TarBroken) as error:
        raise ArchiveCorrupted(f"the archive can't be read: {error}") from error


@dataclass(slots=True)
class _Counted:
    """A file for zstandard that counts and hashes what is read."""

    chunks: Iterator[bytes]
    meta: ArchiveMeta
    unpacked: Unpacked
    _chunk: bytes = b""
    _position: int = 0

    def read(self, size: int) -> bytes:
        if self._position == len(self._chunk):
            self._chunk, self._position = self._next(), 0
        taken = self._chunk[self._position : self._position + size]
        self._position += len(taken)
        return taken

    def drain(self) -> None:
        while self._next():
            pass

    def _next(self) -> bytes:
        chunk = next(self.chunks, b"")
        self.unpacked.size += len(chunk)
        if self.unpacked.size > self.meta.size:
            raise ArchiveCorrupted(f"the archive is longer than the {self.meta.size} bytes that were stored")
        self.unpacked.digest.update(chunk)
        return chunk


def _check(meta: ArchiveMeta, unpacked: Unpacked) -> None:
    if unpacked.size != meta.size:
        raise ArchiveCorrupted(f"the archive has {unpacked.size} bytes, {meta.size} were stored")
    if unpacked.digest.hexdigest() != meta.sha256:
        raise ArchiveCorrupted("the archive's sha256 is not the one that was stored")
    if unpacked.raw_size != meta.raw_size:
        raise ArchiveCorrupted(f"the archive holds {unpacked.raw_size} bytes of tar, {meta.raw_size} were stored")
    unpacked.scanner.finish()
