"""Tars to look at: made by Python's tarfile, by GNU tar, and by hand where no program makes them."""

import io
import random
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from adapters.transfer.tarscan import TarScanner

BLOCK = 512
END = bytes(2 * BLOCK)
DEVICES = (tarfile.CHRTYPE, tarfile.BLKTYPE)


def made(members: Iterable[tuple[tarfile.TarInfo, bytes]], tar_format: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tar_format, encoding="utf-8", errors="surrogateescape") as tar:
        for info, body in members:
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))
    return out.getvalue()


def member(
    name: str, kind: bytes = tarfile.REGTYPE, *, link: str = "", pax: dict[str, str] | None = None
) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = link
    info.pax_headers = pax or {}
    if kind in DEVICES:
        info.devmajor, info.devminor = 1, 3
    return info


def gnu_tar(directory: Path, *options: str) -> bytes:
    """What GNU tar makes of a directory."""
    command = ["tar", "--create", "--directory", str(directory), *options, "."]
    return subprocess.run(command, capture_output=True, check=True).stdout


def listed(tar: bytes) -> list[str]:
    """The entries as GNU tar lists them, with type, owner, size and time."""
    command = ["tar", "--list", "--verbose", "--full-time", "--numeric-owner", "--quoting-style=c"]
    return subprocess.run(command, input=tar, capture_output=True, check=True).stdout.decode().splitlines()


def scanned(chunks: Iterable[bytes]) -> tuple[bytes, TarScanner]:
    scanner = TarScanner()
    out = b"".join(scanner.feed(chunk) for chunk in chunks)
    scanner.finish()
    return out, scanner


def in_pieces(data: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


def in_random_pieces(data: bytes, seed: int, largest: int = 3000) -> Iterator[bytes]:
    chance = random.Random(seed)
    position = 0
    while position < len(data):
        size = chance.choice([0, 1, 2, BLOCK - 1, BLOCK, BLOCK + 1, chance.randrange(1, largest)])
        yield data[position : position + size]
        position += size


def header(name: bytes, kind: bytes, size: bytes, *, flags: dict[int, bytes] | None = None) -> bytes:
    """A header by hand; `size` is the field's own twelve bytes."""
    block = bytearray(BLOCK)
    block[: len(name)] = name
    block[100:108] = b"0000644\0"
    block[108:124] = b"0000000\0" * 2
    block[124:136] = size.ljust(12, b"\0")
    block[136:148] = b"00000000000\0"
    block[156:157] = kind
    block[257:265] = b"ustar\x0000"
    for offset, value in (flags or {}).items():
        block[offset : offset + len(value)] = value
    block[148:156] = b"        "
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def pax(*records: tuple[str, str]) -> bytes:
    """An extended header with these records."""
    body = b"".join(_record(key, value) for key, value in records)
    return header(b"pax", b"x", b"%011o\0" % len(body)) + body.ljust(-(-len(body) // BLOCK) * BLOCK, b"\0")


def _record(key: str, value: str) -> bytes:
    rest = len(f" {key}={value}\n".encode())
    length = rest + len(str(rest))
    length = rest + len(str(length))
    return f"{length} {key}={value}\n".encode()
