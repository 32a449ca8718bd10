"""From a home's tar stream to the parts of its archive."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from io import BytesIO

import zstandard

from adapters.transfer.tarscan import TarScanner
from domain.errors import Unrestorable

MIB = 1024 * 1024
GIB = 1024 * MIB
LEVEL = 3
THREADS = min(os.cpu_count() or 1, 4)
JOB_SIZE = 2 * MIB
"""What a thread compresses at a time. Each needs several times that, whatever the size of the archive."""
MOST_PARTS = 10_000
LONGEST_PATH = 3800
"""Bytes. The engine extracts by whole paths, of which Linux takes 4,095 bytes, and what lies beyond that it leaves out
of a tar without a word: so a directory must leave room for the longest name below it."""


def part_size(number: int) -> int:
    """Of the part with this number: stores take 10,000 parts, so large archives get larger ones. What is in memory at a
    time bounds them, and so an archive to 218 GiB."""
    return (8 if number <= 2000 else 16 if number <= 5000 else 32) * MIB


@dataclass(slots=True)
class Packed:
    """What is known of an archive while it is made; complete once the stream has ended."""

    raw_size: int = 0
    size: int = 0
    scanner: TarScanner = field(default_factory=TarScanner)
    digest: "hashlib._Hash" = field(default_factory=hashlib.sha256)

    @property
    def sha256(self) -> str:
        return self.digest.hexdigest()


def pack(source: Iterable[bytes], packed: Packed, threads: int = THREADS) -> Iterator[bytes]:
    """Compress `source` into parts. Raises TarBroken before the last part when the stream was cut, Unrestorable when
    it could not be extracted again."""
    # The frame's own checksum lets plain `zstd -t` find damage, too.
    parameters = zstandard.ZstdCompressionParameters.from_level(
        LEVEL, threads=threads, job_size=JOB_SIZE if threads else 0, write_checksum=True
    )
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    buffer = BytesIO()
    number = 1
    for chunk in source:
        kept = packed.scanner.feed(chunk)
        packed.raw_size += len(kept)
        if packed.scanner.longest_path > LONGEST_PATH:
            raise Unrestorable(f"it has a path of {packed.scanner.longest_path} bytes, {LONGEST_PATH} can be restored")
        buffer.write(compressor.compress(kept))
        if buffer.tell() >= part_size(number):
            yield _taken(buffer, packed)
            number += 1
            if number > MOST_PARTS:
                raise Unrestorable(f"its archive would be larger than the {packed.size // GIB} GiB that can be stored")
    packed.scanner.finish()
    buffer.write(compressor.flush())
    yield _taken(buffer, packed)


def _taken(buffer: BytesIO, packed: Packed) -> bytes:
    part = buffer.getvalue()
    buffer.seek(0)
    buffer.truncate()
    packed.digest.update(part)
    packed.size += len(part)
    return part
