"""SPEC 8, ADR 0010: an open tab that nobody touches is no activity, though an IDE's tab is never silent."""

import random
from itertools import pairwise

import pytest

from starter.proxy.frames import FrameScanner
from starter.proxy.keep_alive import LONGEST, is_keep_alive

REGULAR, CONTROL, ACK, DISCONNECT, REPLAY, PAUSE, RESUME, KEEP_ALIVE = 1, 2, 3, 5, 6, 7, 8, 9

# As recorded of code-server 4.139 (VS Code 1.139) under a tab that nobody touched.
PING_BODY = bytes.fromhex("0404 0664 06b901 0109 74656c656d65747279 0104 70696e67 00")
ANSWER_BODY = bytes.fromhex("0402 06c901 06b901 00")


def packet(kind: int, body: bytes = b"", number: int = 0, ack: int = 77) -> bytes:
    return bytes([kind]) + number.to_bytes(4, "big") + ack.to_bytes(4, "big") + len(body).to_bytes(4, "big") + body


def frame(payload: bytes, first: int = 0x82, mask: bytes = b"") -> bytes:
    masked = 0x80 if mask else 0
    if len(payload) < 126:
        header = bytes((first, masked | len(payload)))
    elif len(payload) < 1 << 16:
        header = bytes((first, masked | 126)) + len(payload).to_bytes(2, "big")
    else:
        header = bytes((first, masked | 127)) + len(payload).to_bytes(8, "big")
    keys = mask or b"\0\0\0\0"
    return header + mask + bytes(byte ^ keys[at % 4] for at, byte in enumerate(payload))


PING = packet(REGULAR, PING_BODY, number=300)
ANSWER = packet(REGULAR, ANSWER_BODY, number=301)
IDLE = [packet(KEEP_ALIVE), packet(ACK), PING, ANSWER, packet(ACK) + packet(KEEP_ALIVE), ANSWER + packet(ACK)]
BUSY = [
    packet(REGULAR, b"\x04\x04\x06\x64\x06\x07\x01\x08terminal\x01\x05input\x01\x01a", number=4),
    packet(REGULAR, PING_BODY.replace(b"ping", b"pong")),
    packet(REGULAR, PING_BODY + b"\0"),
    packet(REGULAR, ANSWER_BODY[:-1] + b"\x06\x05"),
    packet(REGULAR),
    packet(KEEP_ALIVE, b"x"),
    *(packet(kind) for kind in (0, CONTROL, 4, DISCONNECT, REPLAY, PAUSE, RESUME, 10, 255)),
    packet(KEEP_ALIVE)[:-1],
    packet(KEEP_ALIVE) + b"\0",
    packet(KEEP_ALIVE)[:9] + b"\0\0\0\x05",
    packet(KEEP_ALIVE)[:9] + b"\xff\xff\xff\xff",
    b"x",
    b"",
]


@pytest.mark.parametrize("message", IDLE)
def test_what_an_untouched_tab_says(message: bytes) -> None:
    """Keep-alives, acknowledgements and the measuring of the round trip, alone or several in one message."""
    assert is_keep_alive(message)


@pytest.mark.parametrize("message", BUSY)
def test_everything_else_counts(message: bytes) -> None:
    """Calls, other kinds, and what is only half of one: in doubt it is activity."""
    assert not is_keep_alive(message)
    if message:
        assert not is_keep_alive(packet(ACK) + message)
        assert not is_keep_alive(message + PING)


def test_numbers_of_any_size() -> None:
    """Calls are numbered without end, seven bits to a byte."""
    for number in (b"\x00", b"\x7f", b"\x80\x01", b"\xff\xff\x03", b"\xff\xff\xff\xff\x07"):
        assert is_keep_alive(packet(REGULAR, PING_BODY.replace(b"\xb9\x01", number)))
        assert is_keep_alive(packet(REGULAR, b"\x04\x02\x06\xc9\x01\x06" + number + b"\x00"))


def test_any_bytes() -> None:
    """Nothing makes it fail, and noise is activity."""
    choice = random.Random(8)
    assert not any(is_keep_alive(choice.randbytes(choice.randint(0, 60))) for _ in range(20_000))


@pytest.mark.parametrize("mask", [b"", b"\x11\x02\xf3\x80"])
def test_on_the_wire(mask: bytes) -> None:
    """Of a stream of frames, cut anywhere, exactly those count that say something."""
    choice = random.Random(10)
    kinds = [(frame(message, mask=mask), False) for message in IDLE]
    kinds += [(frame(message, mask=mask), True) for message in BUSY]
    kinds += [(frame(PING, first, mask), False) for first in (0x88, 0x89, 0x8A)]
    # Text, compressed, in fragments, or too long to be looked at.
    kinds += [(frame(PING, first, mask), True) for first in (0x81, 0xC2, 0x02, 0x80, 0x00)]
    kinds += [(frame(packet(ACK) * (LONGEST // 13 + 1), mask=mask), True), (frame(b"x" * 70_000, mask=mask), True)]
    for _ in range(300):
        chosen = choice.sample(kinds, 5)
        stream = b"".join(data for data, _ in chosen)
        cuts = sorted(choice.sample(range(1, len(stream)), choice.randint(0, min(20, len(stream) - 1))))
        scanner = FrameScanner()
        saw = [scanner.saw_activity(stream[start:end]) for start, end in pairwise([0, *cuts, len(stream)])]
        assert any(saw) is any(counts for _, counts in chosen)
        assert scanner.is_at_boundary


def test_byte_by_byte() -> None:
    """A keep-alive that comes in pieces is one, and what comes after it is seen."""
    scanner = FrameScanner()
    for message in (PING, packet(KEEP_ALIVE)):
        assert not any(scanner.saw_activity(bytes([byte])) for byte in frame(message, mask=b"abcd"))
    assert any(scanner.saw_activity(bytes([byte])) for byte in frame(b"typed", mask=b"abcd"))
