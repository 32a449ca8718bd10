"""What holds for the scanner on any tar, in any chunks, with any damage."""

import contextlib
import io
import itertools
import tarfile

from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.transfer.tarscan import TarBroken, TarScanner
from tests.transfer.tars import DEVICES, END, in_pieces, made, member, scanned

names = st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1, max_size=300)
kinds = st.sampled_from(
    [tarfile.REGTYPE] * 3
    + [tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE]
)
formats = st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])


@st.composite
def members(draw: st.DrawFn) -> list[tuple[tarfile.TarInfo, bytes]]:
    found: list[tuple[tarfile.TarInfo, bytes]] = []
    for name in draw(st.lists(names, max_size=8, unique=True)):
        kind = draw(kinds)
        body = draw(st.binary(max_size=1500)) if kind == tarfile.REGTYPE else b""
        found.append(
            (
                member(name, kind, link=draw(st.sampled_from([*(i.name for i, _ in found), "x"])), pax=draw(_comments)),
                body,
            )
        )
    return found


_comments: st.SearchStrategy[dict[str, str]] = st.one_of(
    st.just({}), st.fixed_dictionaries({"comment": st.text(max_size=600)})
)
cuts = st.lists(st.integers(0, 20_000), max_size=12)


@given(members(), formats, cuts)
@settings(max_examples=150, deadline=None)
def test_what_goes_on_is_the_same_tar_without_its_devices(
    entries: list[tuple[tarfile.TarInfo, bytes]], tar_format: int, at: list[int]
) -> None:
    """For any entries and any chunks; and nothing of it depends on where the chunks end."""
    tar = made(entries, tar_format)
    out, scanner = scanned(_cut(tar, at))
    assert (out, scanner.entries, scanner.devices) == _at_once(tar)
    without = _without_devices(entries)
    assert _contents(out) == _contents(made(without, tar_format))
    assert scanner.entries == len(without)
    assert scanner.devices == len(entries) - len(without)
    if len(without) == len(entries):
        assert out == tar


@given(members(), formats, st.integers(0, 2**32), st.integers(1, 255), cuts)
@settings(max_examples=300, deadline=None)
def test_a_damaged_tar_is_refused_or_passed_on_but_never_breaks_the_scanner(
    entries: list[tuple[tarfile.TarInfo, bytes]], tar_format: int, where: int, flip: int, at: list[int]
) -> None:
    """No other error than TarBroken, no endless loop, and never more bytes than came in."""
    tar = bytearray(made(entries, tar_format))
    tar[where % len(tar)] ^= flip
    scanner, out = TarScanner(), 0
    with contextlib.suppress(TarBroken):
        for chunk in _cut(bytes(tar), at):
            out += len(scanner.feed(chunk))
        scanner.finish()
    assert out <= len(tar)


@given(st.binary(max_size=4000), st.integers(1, 700))
@settings(max_examples=150, deadline=None)
def test_noise_never_breaks_the_scanner(noise: bytes, size: int) -> None:
    with contextlib.suppress(TarBroken):
        scanned(in_pieces(noise + END, size))


def _without_devices(entries: list[tuple[tarfile.TarInfo, bytes]]) -> list[tuple[tarfile.TarInfo, bytes]]:
    gone: set[str] = set()
    kept = []
    for info, body in entries:
        if info.type in DEVICES or (info.type == tarfile.LNKTYPE and info.linkname in gone):
            gone.add(info.name)
        else:
            kept.append((info, body))
    return kept


def _cut(data: bytes, at: list[int]) -> list[bytes]:
    edges = [0, *sorted(min(edge, len(data)) for edge in at), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def _at_once(tar: bytes) -> tuple[bytes, int, int]:
    out, scanner = scanned([tar])
    return out, scanner.entries, scanner.devices


def _contents(tar: bytes) -> list[tuple[object, ...]]:
    with tarfile.open(fileobj=io.BytesIO(tar), encoding="utf-8", errors="surrogateescape") as found:
        read: list[tuple[object, ...]] = []
        for info in found:
            file = found.extractfile(info) if info.isreg() else None
            body = file.read() if file else b""
            read.append((info.name, info.type, info.linkname, info.size, info.pax_headers.get("comment"), body))
        return read
