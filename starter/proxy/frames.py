"""WebSocket frames, just enough of them to tell what is activity. Nothing is changed, and nothing large is kept."""

from starter.proxy.keep_alive import LONGEST, is_keep_alive

_DATA_OPCODES = frozenset({0, 1, 2})
# A whole binary message in one frame, not compressed.
_WHOLE_BINARY = 0x82


class FrameScanner:
    """Follows one direction of a WebSocket."""

    __slots__ = ("_counts", "_header", "_left", "_mask", "_small")

    def __init__(self) -> None:
        self._left = 0
        self._header = b""
        self._counts = False
        # A frame that may be a keep-alive: known when all of it is there.
        self._small: bytearray | None = None
        self._mask = b""

    @property
    def is_at_boundary(self) -> bool:
        """Whether a frame of our own could go here."""
        return not self._left and not self._header

    def saw_activity(self, data: bytes) -> bool:
        """Whether any of this is of a data frame that is no keep-alive. Pings, pongs and closes never are activity."""
        if self._header:
            data, self._header = self._header + data, b""
        at, size, saw = 0, len(data), False
        while at < size:
            if not self._left:
                header = self._begin(data, at, size)
                if not header:
                    self._header = data[at:]
                    break
                at += header
            taken = min(self._left, size - at)
            self._left -= taken
            if self._small is None:
                saw = saw or self._counts
            else:
                self._small += data[at : at + taken]
                saw = saw or (not self._left and not is_keep_alive(self._unmasked(self._small)))
            at += taken
        return saw

    def _begin(self, data: bytes, at: int, size: int) -> int:
        """The length of the frame's header at `at`; 0 while it is not complete."""
        if size - at < 2:
            return 0
        first, second = data[at], data[at + 1]
        masked, length = second & 0x80, second & 0x7F
        header = 2 + (4 if masked else 0) + (0 if length < 126 else 2 if length == 126 else 8)
        if size - at < header:
            return 0
        if length == 126:
            length = int.from_bytes(data[at + 2 : at + 4], "big")
        elif length == 127:
            length = int.from_bytes(data[at + 2 : at + 10], "big")
        self._left = length
        self._counts = first & 0x0F in _DATA_OPCODES
        self._small = bytearray() if first == _WHOLE_BINARY and 0 < length <= LONGEST else None
        self._mask = data[at + header - 4 : at + header] if masked else b""
        return header

    def _unmasked(self, payload: bytearray) -> bytes:
        if not self._mask:
            return bytes(payload)
        mask = (self._mask * (len(payload) // 4 + 1))[: len(payload)]
        return bytes(byte ^ key for byte, key in zip(payload, mask, strict=True))


def close_frame(code: int, reason: str = "") -> bytes:
    """From a server: not masked."""
    payload = code.to_bytes(2, "big") + reason.encode()
    return bytes((0x88, len(payload))) + payload
