"""The scanner on tars of every make, however they are cut into chunks."""

import os
import tarfile
from pathlib import Path

import pytest

from adapters.transfer.tarscan import TarBroken, TarScanner
from tests.transfer.tars import (
    BLOCK,
    END,
    gnu_tar,
    header,
    in_pieces,
    in_random_pieces,
    listed,
    made,
    member,
    pax,
    scanned,
)

CHUNKS = [1, 7, 511, 512, 513, 4096, 10**9]
LONG = "l" * 180


def tree(root: Path, *, fifo: bool = True) -> None:
    (root / "dir").mkdir()
    (root / "dir/file").write_bytes(b"x" * 700)
    (root / "exact").write_bytes(b"y" * 1024)
    (root / "empty").write_bytes(b"")
    os.link(root / "dir/file", root / "hard")
    (root / "link").symlink_to("dir/file")
    if fifo:
        os.mkfifo(root / "fifo")
    os.utime(root / "exact", ns=(0, 1_500_000_000_987_654_321))


def with_long_names(root: Path) -> None:
    (root / LONG).write_bytes(b"long")
    (root / f"{LONG}-link").symlink_to("t" * 150)
    os.link(root / LONG, root / f"{LONG}-hard")
    Path(os.fsdecode(os.fsencode(root) + b"/\xff\xfe")).write_bytes(b"bytes")


def with_holes(root: Path) -> None:
    with (root / "sparse").open("wb") as file:
        for island in range(40):
            file.seek(island * 64 * 1024)
            file.write(b"island %d" % island)
        file.truncate(4 * 1024 * 1024)


@pytest.mark.parametrize("tar_format", ["v7", "oldgnu", "gnu", "ustar", "posix"])
@pytest.mark.parametrize("chunk", CHUNKS)
def test_every_format_of_gnu_tar_passes_unchanged(tmp_path: Path, tar_format: str, chunk: int) -> None:
    """Not a byte is changed, and every entry is counted."""
    tree(tmp_path, fifo=tar_format != "v7")
    if tar_format not in {"v7", "ustar"}:
        with_long_names(tmp_path)
    options = ["--pax-option=delete=atime,delete=ctime"] if tar_format == "posix" else []
    tar = gnu_tar(tmp_path, f"--format={tar_format}", *options)
    out, scanner = scanned(in_pieces(tar, chunk))
    assert out == tar
    assert scanner.entries == len(listed(tar))
    assert scanner.devices == 0


@pytest.mark.parametrize("tar_format", ["v7", "oldgnu", "gnu", "ustar", "posix"])
def test_files_are_counted_apart_from_what_else_there_is(tmp_path: Path, tar_format: str) -> None:
    """What a person calls files: regular ones, with holes or without, and each name of one that has several. No
    directories, symbolic links and pipes."""
    tree(tmp_path, fifo=tar_format != "v7")
    with_holes(tmp_path)
    sparse = [] if tar_format in {"v7", "ustar"} else ["--sparse"]
    _, scanner = scanned([gnu_tar(tmp_path, f"--format={tar_format}", *sparse)])
    assert scanner.files == sum(path.is_file() and not path.is_symlink() for path in tmp_path.rglob("*")) == 5
    assert scanner.entries > scanner.files


def test_a_directory_of_the_oldest_format_is_no_file() -> None:
    """Only its name tells."""
    tar = header(b"dir/", b"\0", b"0") + header(b"dir/file", b"\0", b"0") + END
    _, scanner = scanned([tar])
    assert (scanner.entries, scanner.files) == (2, 1)


def test_a_hard_link_to_a_device_is_no_file() -> None:
    """It is left out with the device."""
    device, link = member("whiteout", tarfile.CHRTYPE), member("second", tarfile.LNKTYPE, link="whiteout")
    _, scanner = scanned([made([(device, b""), (link, b""), (member("file"), b"x")])])
    assert (scanner.entries, scanner.files) == (1, 1)


@pytest.mark.parametrize("kind", ["gnu", "oldgnu", "posix 0.0", "posix 0.1", "posix 1.0"])
@pytest.mark.parametrize("chunk", [1, 513, 10**9])
def test_sparse_files_pass_unchanged_in_every_format(tmp_path: Path, kind: str, chunk: int) -> None:
    """Maps of holes may stand in pax records, before the data, or in blocks of their own behind the header."""
    with_holes(tmp_path)
    tree(tmp_path)
    tar_format, _, version = kind.partition(" ")
    options = [f"--sparse-version={version}"] if version else []
    tar = gnu_tar(tmp_path, "--sparse", f"--format={tar_format}", *options)
    assert len(tar) < 1024 * 1024
    out, scanner = scanned(in_pieces(tar, chunk))
    assert out == tar
    assert scanner.entries == len(listed(tar))


@pytest.mark.parametrize("tar_format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("chunk", CHUNKS)
def test_devices_are_left_out_together_with_their_extension_headers(tar_format: int, chunk: int) -> None:
    """Wherever a chunk ends: the headers before a device must not be taken for the next entry's."""
    long = "d" * 90 if tar_format == tarfile.USTAR_FORMAT else "d" * 300
    kept = [(member("first"), b"1" * 600), (member("last"), b"2")]
    around = [
        (member("char", tarfile.CHRTYPE), b""),
        kept[0],
        (member(long, tarfile.BLKTYPE), b""),
        (member(f"{long}2", tarfile.CHRTYPE, pax={"comment": "c" * 700}), b""),
        kept[1],
        (member("end", tarfile.BLKTYPE), b""),
    ]
    out, scanner = scanned(in_pieces(made(around, tar_format), chunk))
    assert listed(out) == listed(made(kept, tar_format))
    assert scanner.devices == 4
    assert scanner.entries == 2


def test_hard_links_to_a_device_go_with_it() -> None:
    """A link to something that is not in the tar can't be extracted, and would make the whole home unrestorable."""
    long = "n" * 200
    tar = made(
        [
            (member("whiteout", tarfile.CHRTYPE), b""),
            (member("second", tarfile.LNKTYPE, link="whiteout"), b""),
            (member(long, tarfile.CHRTYPE), b""),
            (member(f"{long}2", tarfile.LNKTYPE, link=long), b""),
            (member("third", tarfile.LNKTYPE, link="second"), b""),
            (member("file"), b"x"),
            (member("good", tarfile.LNKTYPE, link="file"), b""),
        ]
    )
    for chunk in CHUNKS:
        out, scanner = scanned(in_pieces(tar, chunk))
        assert [line.rpartition('"file"')[1:] for line in listed(out)] == [('"file"', ""), ('"file"', "")]
        assert (scanner.entries, scanner.devices) == (2, 5)


@pytest.mark.parametrize("tar_format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_the_longest_path_is_known(tar_format: int) -> None:
    path = "/".join(["d" * 100] * 50)
    _, scanner = scanned([made([(member("a"), b""), (member(path), b""), (member("b"), b"")], tar_format)])
    assert scanner.longest_path == len(path)


def test_a_global_header_outlives_the_device_after_it() -> None:
    """It describes all entries that follow, not only the device."""
    global_header = pax(("comment", "all"))
    global_header = header(b"pax", b"g", global_header[124:136]) + global_header[BLOCK:]
    device = header(b"dev", b"3", b"0")
    out, scanner = scanned([global_header + device + header(b"file", b"0", b"0") + END])
    assert out == global_header + header(b"file", b"0", b"0") + END
    assert (scanner.entries, scanner.devices) == (1, 1)


@pytest.mark.parametrize(
    "start",
    [
        header(b"huge", b"0", b"\x80" + (20 * 2**30).to_bytes(11, "big")),
        pax(("path", "huge"), ("size", str(20 * 2**30))) + header(b"huge", b"0", b"00000000000\0"),
    ],
    ids=["base-256", "pax"],
)
def test_files_beyond_eight_gigabytes_are_followed_to_their_end(start: bytes) -> None:
    """Their size does not fit into the plain field. Zero bytes inside of them are no end of the archive."""
    scanner = TarScanner()
    scanner.feed(start)
    piece = bytes(64 * 1024 * 1024)
    for _ in range(320):
        assert not scanner.ended
        scanner.feed(piece)
    with pytest.raises(TarBroken):
        scanner.finish()
    scanner.feed(header(b"next", b"0", b"00000000001\0") + b"x".ljust(BLOCK, b"\0") + END)
    scanner.finish()
    assert scanner.entries == 2


def test_a_tar_that_is_cut_anywhere_is_no_tar() -> None:
    """At every block boundary, and beside it: only the second zero block makes it whole."""
    tar = made([(member("a" * 200), b"x" * 1000), (member("dev" * 60, tarfile.CHRTYPE), b""), (member("b"), b"")])
    whole = len(tar.rstrip(b"\0")) // BLOCK * BLOCK + BLOCK + 2 * BLOCK
    for end in range(0, whole, BLOCK):
        for at in {max(0, end - 1), end, min(end + 1, whole - 1)}:
            scanner = TarScanner()
            scanner.feed(tar[:at])
            with pytest.raises(TarBroken):
                scanner.finish()
    scanned([tar[:whole]])


def test_zeros_inside_a_file_do_not_end_the_tar() -> None:
    tar = made([(member("zeros"), bytes(5000)), (member("more"), b"x")])
    for seed in range(20):
        out, scanner = scanned(in_random_pieces(tar, seed))
        assert out == tar
        assert scanner.entries == 2


def test_data_between_the_end_markers_is_refused() -> None:
    one_zero_block = header(b"a", b"0", b"0") + bytes(BLOCK) + header(b"b", b"0", b"0") + END
    with pytest.raises(TarBroken):
        scanned([one_zero_block])


@pytest.mark.parametrize(
    "tar",
    [
        header(b"a", b"0", b"-0000001000") + END,
        header(b"a", b"0", b"1_000") + END,
        header(b"a", b"0", b"\xff" * 12) + END,
        pax(("size", "-1000")) + header(b"a", b"0", b"0") + END,
        pax(("size", "ten")) + header(b"a", b"0", b"0") + END,
        pax(("size", "")) + header(b"a", b"0", b"0") + END,
        pax(("size", "9" * 5000)) + header(b"a", b"0", b"0") + END,
        pax(("size", "1" + "0" * 20)) + header(b"a", b"0", b"0") + END,
        header(b"pax", b"x", b"00000000020") + b"no length".ljust(BLOCK, b"\0") + END,
        header(b"pax", b"x", b"00000000010") + b"-5 size=".ljust(BLOCK, b"\0") + END,
        header(b"pax", b"x", b"77777777777") + END,
    ],
)
def test_damaged_headers_are_refused(tar: bytes) -> None:
    """A scanner that went backwards, or on with a wrong length, would loop or lose its place."""
    with pytest.raises(TarBroken):
        scanned([tar])
