"""Packing a home's tar and unpacking it again."""

import os
import random
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from adapters.transfer import pack as packing
from adapters.transfer.pack import MIB, Packed, pack, part_size
from adapters.transfer.tarscan import TarBroken
from adapters.transfer.unpack import Unpacked, unpack
from domain.archive import ArchiveMeta
from domain.errors import ArchiveCorrupted, Unrestorable
from domain.model import OperationId, WorkspaceId
from tests.transfer.tars import header, in_pieces, in_random_pieces, made, member, pax, scanned

MEMORY = """
import resource, sys
sys.path.insert(0, ".")
from tests.transfer.test_pack import meta_of
from adapters.transfer.pack import Packed, pack
from adapters.transfer.unpack import Unpacked, unpack
from tests.transfer.tars import END, header

MIB = 1024 * 1024
size = int(sys.argv[1]) * MIB

def bomb():
    yield header(b"home/zeros", b"0", b"\\x80" + size.to_bytes(11, "big"))
    for _ in range(size // MIB):
        yield bytes(MIB)
    yield END

def small():
    yield header(b"home/zeros", b"0", b"0") + END

def through(source):
    packed = Packed()
    parts = list(pack(source, packed))
    unpacked = Unpacked()
    for _ in unpack(iter(parts), meta_of(packed), unpacked):
        pass
    return unpacked.raw_size

through(small())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert through(bomb()) == size + 512 * 3
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def meta_of(packed: Packed) -> ArchiveMeta:
    return ArchiveMeta(
        format_version=1,
        workspace_id=WorkspaceId("w"),
        archive_op_id=OperationId("o"),
        sha256=packed.sha256,
        size=packed.size,
        raw_size=packed.raw_size,
        entries=packed.scanner.entries,
        codehub_version="1",
        created_at=datetime.now(UTC),
    )


def packed_tar(tar: bytes) -> tuple[bytes, ArchiveMeta]:
    packed = Packed()
    body = b"".join(pack([tar], packed))
    return body, meta_of(packed)


def unpacked(body: bytes, meta: ArchiveMeta, chunk: int = 10**9) -> bytes:
    return b"".join(unpack(in_pieces(body, chunk), meta, Unpacked()))


@pytest.mark.parametrize("seed", range(5))
def test_what_was_packed_comes_out_again(seed: int) -> None:
    """Whatever the sizes of chunks on either side."""
    chance = random.Random(seed)
    files = [(member(f"home/{n}"), chance.randbytes(chance.randrange(100_000))) for n in range(20)]
    tar = made([*files, (member("home/dev", tarfile.CHRTYPE), b"")])
    packed = Packed()
    body = b"".join(pack(in_random_pieces(tar, seed, 200_000), packed))
    without, scanner = scanned([tar])
    assert packed.raw_size == len(without)
    assert packed.size == len(body)
    assert packed.scanner.entries == scanner.entries == 20
    assert unpacked(body, meta_of(packed), chance.randrange(1, 50_000)) == without


def test_an_archive_is_what_zstd_makes(tmp_path: Path) -> None:
    """The plain program opens it, and finds damage by the checksum in it."""
    tar = made([(member("home/a"), os.urandom(100_000))])
    body, _ = packed_tar(tar)
    (tmp_path / "a.zst").write_bytes(body)
    assert subprocess.run(["zstd", "-dc", tmp_path / "a.zst"], check=True, capture_output=True).stdout == tar
    damaged = bytearray(body)
    damaged[len(damaged) // 2] ^= 1
    (tmp_path / "a.zst").write_bytes(bytes(damaged))
    assert subprocess.run(["zstd", "-t", tmp_path / "a.zst"], check=False, capture_output=True).returncode != 0


def test_parts_have_the_size_that_stores_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the last have at least 5 MiB, and 10,000 of them hold hundreds of gigabytes."""
    assert min(part_size(number) for number in range(1, 10_001)) >= 5 * MIB
    assert sum(part_size(number) for number in range(1, 10_001)) > 200 * 1024 * MIB
    monkeypatch.setattr(packing, "part_size", lambda number: 64 * 1024 * number)
    tar = made([(member("home/random"), os.urandom(2 * MIB))])
    parts = list(pack(in_pieces(tar, 10_000), Packed(), threads=0))
    assert len(parts) > 5
    assert all(len(part) >= 64 * 1024 * number for number, part in enumerate(parts[:-1], 1))


def test_an_archive_of_too_many_parts_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it is sent, and with a reason: a store would refuse the last parts after hours."""
    monkeypatch.setattr(packing, "part_size", lambda _: 64 * 1024)
    monkeypatch.setattr(packing, "MOST_PARTS", 3)
    with pytest.raises(Unrestorable, match="that can be stored"):
        list(pack(in_pieces(made([(member("noise"), os.urandom(1024 * 1024))]), 10_000), Packed(), threads=0))


def test_a_stream_that_breaks_off_gives_no_last_part() -> None:
    """Wherever it breaks: what was compressed is not flushed, so it is not even a whole zstd frame."""
    tar = made([(member("home/a"), b"x" * 3000), (member("home/b"), b"y" * 700)])
    end = tar.rindex(b"y") // 512 * 512 + 512 + 1024
    for cut in [*range(0, end, 100), end - 1]:
        with pytest.raises(TarBroken):
            list(pack([tar[:cut]], Packed()))
    list(pack([tar[:end]], Packed()))


def test_a_source_that_fails_is_no_end() -> None:
    def source() -> Iterator[bytes]:
        yield made([(member("home/a"), b"x")])
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        list(pack(source(), Packed()))


def test_paths_that_could_not_be_extracted_again_are_refused() -> None:
    """The engine can't extract them, and leaves them out of its own tars without a word."""
    path = "home/" + "/".join(["d" * 100] * 38)
    with pytest.raises(Unrestorable, match="3842 bytes"):
        list(pack([made([(member(path), b"x")])], Packed()))


def test_every_damaged_byte_is_found() -> None:
    """Each bit of each byte of a small archive."""
    body, meta = packed_tar(made([(member("home/a"), b"some words " * 40), (member("home/b"), os.urandom(200))]))
    for position in range(len(body)):
        for bit in range(8):
            damaged = bytearray(body)
            damaged[position] ^= 1 << bit
            with pytest.raises(ArchiveCorrupted):
                unpacked(bytes(damaged), meta)


def test_every_truncation_and_every_tail_is_found() -> None:
    body, meta = packed_tar(made([(member("home/a"), b"some words " * 40), (member("home/b"), os.urandom(200))]))
    for length in range(len(body)):
        with pytest.raises(ArchiveCorrupted):
            unpacked(body[:length], meta)
    for tail in (b"\0", b"x" * 1000, body):
        with pytest.raises(ArchiveCorrupted):
            unpacked(body + tail, meta)
    assert unpacked(body, meta)


@pytest.mark.parametrize("field", ["sha256", "size", "raw_size"])
def test_a_meta_that_says_otherwise_is_found(field: str) -> None:
    body, meta = packed_tar(made([(member("home/a"), b"x")]))
    other = {"sha256": "0" * 64, "size": meta.size + 1, "raw_size": meta.raw_size + 1}[field]
    with pytest.raises(ArchiveCorrupted):
        unpacked(body, meta.model_copy(update={field: other}))


def test_a_tar_without_an_end_is_found_even_with_the_right_checksum() -> None:
    """Nobody could store one; were it there, it would not be taken for a home."""
    packed = Packed()
    packed.scanner.ended = True
    body = b"".join(pack([header(b"home/a", b"0", b"00000000000\0")], packed))
    with pytest.raises(ArchiveCorrupted, match="end-of-archive"):
        unpacked(body, meta_of(packed))


def test_a_bomb_is_given_up_where_the_home_would_end() -> None:
    """Bytes that grow beyond what was stored never get to a disk, whatever their checksum will turn out to be."""
    honest = packed_tar(made([(member("home/a"), b"x")]))[1]
    bomb, its_own = packed_tar(made([(member("home/zeros"), bytes(64 * MIB))]))
    meta = its_own.model_copy(update={"raw_size": honest.raw_size})
    written: list[bytes] = []
    with pytest.raises(ArchiveCorrupted, match=f"more than the {honest.raw_size} bytes"):
        written.extend(unpack(in_pieces(bomb, 10**9), meta, Unpacked()))
    assert sum(map(len, written)) <= honest.raw_size


def test_a_tar_that_breaks_the_reader_is_a_corrupted_archive() -> None:
    """A number of more digits than Python reads is no number."""
    packed = Packed()
    packed.scanner.ended = True
    tar = pax(("size", "9" * 5000)) + header(b"home/a", b"0", b"00000000000\0")
    body = b"".join(pack([tar], packed))
    with pytest.raises(ArchiveCorrupted):
        unpacked(body, meta_of(packed))


def test_a_bomb_of_zeros_takes_no_memory() -> None:
    """A gigabyte of zeros in a hundred kilobytes of archive: packed and unpacked piece by piece."""
    grown = subprocess.run([sys.executable, "-c", MEMORY, "1024"], capture_output=True, text=True, check=True).stdout
    assert int(grown) < 60 * 1024, "KiB"
