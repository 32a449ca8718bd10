"""WebSocket frames, just enough of them: which bytes belong to data frames. Nothing is decoded or kept."""

_DATA_OPCODES = frozenset({0, 1, 2})


class FrameScanner:
    """Follows one direction of a WebSocket."""

    __slots__ = ("_header", "_is_data", "_left", "_quiet")

    def __init__(self, quiet: int = 0) -> None:
        """Data frames with a payload of at most `quiet` bytes don't count."""
        self._left = 0
        self._header = b""
        self._is_data = False
        self._quiet = quiet

    @property
    def is_at_boundary(self) -> bool:
        """Whether a frame of our own could go here."""
        return not self._left and not self._header

    def saw_data(self, data: bytes) -> bool:
        """Whether any of this is of a data frame that counts."""
        size = len(data)
        if size <= self._left:
            self._left -= size
            return self._is_data
        saw = self._left > 0 and self._is_data
        at, self._left = self._left, 0
        if self._header:
            data, self._header = self._header + data, b""
            size = len(data)
        while at < size:
            length = self._begin(data, at, size)
            if not length:
                self._header = data[at:]
                break
            saw = saw or self._is_data
            end = at + length + self._left
            self._left = max(0, end - size)
            at = end
        return saw

    def _begin(self, data: bytes, at: int, size: int) -> int:
        """The length of the frame's header at `at`; 0 while it is not complete."""
        if size - at < 2:
            return 0
        second = data[at + 1]
        masked, length = second & 0x80, second & 0x7F
        header = 2 + (4 if masked else 0) + (0 if length < 126 else 2 if length == 126 else 8)
        if size - at < header:
            return 0
        if length == 126:
            length = int.from_bytes(data[at + 2 : at + 4], "big")
        elif length == 127:
            length = int.from_bytes(data[at + 2 : at + 10], "big")
        self._left = length
        self._is_data = data[at] & 0x0F in _DATA_OPCODES and (length > self._quiet or not self._quiet)
        return header


def close_frame(code: int, reason: str = "") -> bytes:
    """From a server: not masked."""
    payload = code.to_bytes(2, "big") + reason.encode()
    return bytes((0x88, len(payload))) + payload
