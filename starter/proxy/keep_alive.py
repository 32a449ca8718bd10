"""What an open tab says while nobody touches it (ADR 0010). Pure.

VS Code's protocol in a browser: binary messages that hold one or more packets, each a header of 13 bytes (kind, number,
last number received, length) and a body. Of an idle IDE these are heard: KeepAlive every 5 s, Ack, and its measuring of
the round trip, which is a call of `telemetry.ping` and the empty answer to it. An empty answer to any other call is
none to miss: the call itself was seen.
"""

import re

# Whatever is longer says more than that.
LONGEST = 256

_HEADER = 13
_REGULAR, _ACK, _KEEP_ALIVE = 1, 3, 9

# Arrays of (kind, number) and (kind, number, channel, name), then the argument: numbers take seven bits of a byte.
_NUMBER = rb"\x06[\x80-\xff]{0,4}[\x00-\x7f]"
_PING = re.compile(rb"\x04\x04\x06\x64%b\x01\x09telemetry\x01\x04ping\x00" % _NUMBER)
_EMPTY_ANSWER = re.compile(rb"\x04\x02\x06\xc9\x01%b\x00" % _NUMBER)


def is_keep_alive(message: bytes) -> bool:
    """Of a whole binary message, whether it says only that both ends are there."""
    at = 0
    while at + _HEADER <= len(message):
        body = at + _HEADER
        end = body + int.from_bytes(message[body - 4 : body], "big")
        if end > len(message) or not _says_nothing(message[at], message[body:end]):
            return False
        at = end
    return 0 < at == len(message)


def _says_nothing(kind: int, body: bytes) -> bool:
    if kind == _REGULAR:
        return bool(_PING.fullmatch(body) or _EMPTY_ANSWER.fullmatch(body))
    return kind in {_ACK, _KEEP_ALIVE} and not body
