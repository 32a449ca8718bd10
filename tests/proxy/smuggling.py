"""Requests that readers may disagree about: where one ends, and whether there is another one behind it."""

# What would be a second request, for whoever sees the first one end too early.
EVIL = "GET /evil HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED_EVIL = f"0\r\n\r\n{EVIL}"

# {at} is the workspace's path, {host} the server, {auth} a valid Cookie line. Lines end with CR LF where nothing else
# is said. The second column is the status of the first answer; None: it passes as the one request that it is.
FIRST = "POST {at} HTTP/1.1\r\nHost: {host}\r\n{auth}Content-Type: application/json\r\n"
HANDSHAKE = (
    "GET {at} HTTP/1.1\r\nHost: {host}\r\n{auth}Origin: http://{host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
)
CASES: dict[str, tuple[str, int | None]] = {
    # two lengths
    "length twice, different": (FIRST + "Content-Length: 5\r\nContent-Length: 50\r\n\r\nhello" + EVIL, 400),
    "length twice, same": (FIRST + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello" + EVIL, 400),
    "length twice, zero first": (FIRST + "Content-Length: 0\r\nContent-Length: 44\r\n\r\n" + EVIL, 400),
    "length as a list": (FIRST + "Content-Length: 0, 44\r\n\r\n" + EVIL, 400),
    "length with a plus": (FIRST + "Content-Length: +5\r\n\r\nhello" + EVIL, 400),
    "length with a minus": (FIRST + "Content-Length: -1\r\n\r\n" + EVIL, 400),
    "length in hex": (FIRST + "Content-Length: 0x5\r\n\r\nhello" + EVIL, 400),
    "length with an underscore": (FIRST + "Content-Length: 1_0\r\n\r\nhello" + EVIL, 400),
    "length with a space inside": (FIRST + "Content-Length: 1 0\r\n\r\nhello" + EVIL, 400),
    "length with words": (FIRST + "Content-Length: five\r\n\r\nhello" + EVIL, 400),
    "length that is empty": (FIRST + "Content-Length:\r\n\r\n" + EVIL, 400),
    "length beyond all": (FIRST + "Content-Length: 99999999999999999999\r\n\r\n" + EVIL, 400),
    "length in other digits": (FIRST + "Content-Length: \u00b2\r\n\r\n" + EVIL, 400),
    "length quoted": (FIRST + 'Content-Length: "5"\r\n\r\nhello' + EVIL, 400),
    "length behind a space": (FIRST + "Content-Length : 5\r\n\r\nhello" + EVIL, 400),
    "length on a folded line": (FIRST + "Content-Length:\r\n 5\r\n\r\nhello" + EVIL, 400),
    "length named by underscore": (FIRST + "Content_Length: 44\r\n\r\n", None),
    # a length and chunks
    "length, then chunks": (FIRST + "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKED_EVIL, 400),
    "chunks, then length": (FIRST + "Transfer-Encoding: chunked\r\nContent-Length: 49\r\n\r\n" + CHUNKED_EVIL, 400),
    "chunks and length zero": (FIRST + "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n" + CHUNKED_EVIL, 400),
    # chunks in disguise
    "TE with a space before the colon": (FIRST + "Transfer-Encoding : chunked\r\n\r\n" + CHUNKED_EVIL, 400),
    "TE with a tab before the colon": (FIRST + "Transfer-Encoding\t: chunked\r\n\r\n" + CHUNKED_EVIL, 400),
    "TE of a leading space": (FIRST + " Transfer-Encoding: chunked\r\n\r\n" + CHUNKED_EVIL, 400),
    "TE folded": (FIRST + "Transfer-Encoding:\r\n chunked\r\n\r\n" + CHUNKED_EVIL, 400),
    "TE folded with a tab": (FIRST + "X: 1\r\n\tTransfer-Encoding: chunked\r\n\r\n" + CHUNKED_EVIL, 400),
    "TE twice": (FIRST + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKED_EVIL, 400),
    "TE twice, one of them another": (
        FIRST + "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n" + CHUNKED_EVIL,
        400,
    ),
    "TE identity": (FIRST + "Transfer-Encoding: identity\r\nContent-Length: 44\r\n\r\n" + EVIL, 400),
    "TE xchunked": (FIRST + "Transfer-Encoding: xchunked\r\n\r\n" + CHUNKED_EVIL, 501),
    "TE chunked as a list": (FIRST + "Transfer-Encoding: chunked, chunked\r\n\r\n" + CHUNKED_EVIL, 501),
    "TE gzip and chunked": (FIRST + "Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKED_EVIL, 501),
    "TE chunked with a parameter": (FIRST + "Transfer-Encoding: chunked;x=y\r\n\r\n" + CHUNKED_EVIL, 501),
    "TE chunked in quotes": (FIRST + 'Transfer-Encoding: "chunked"\r\n\r\n' + CHUNKED_EVIL, 501),
    "TE with a vertical tab": (FIRST + "Transfer-Encoding: \x0bchunked\r\n\r\n" + CHUNKED_EVIL, 400),
    "TE with a NUL": (FIRST + "Transfer-Encoding: chunked\x00\r\n\r\n" + CHUNKED_EVIL, 400),
    "TE in HTTP/1.0": (FIRST.replace("1.1", "1.0") + "Transfer-Encoding: chunked\r\n\r\n" + CHUNKED_EVIL, 400),
    "TE hidden behind a bare LF": (FIRST + "X: 1\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKED_EVIL, 400),
    "TE hidden behind a bare CR": (FIRST + "X: 1\rTransfer-Encoding: chunked\r\n\r\n" + CHUNKED_EVIL, 400),
    "TE named by underscore": (FIRST + "Transfer_Encoding: chunked\r\nContent-Length: 0\r\n\r\n", None),
    # chunks that are none
    "chunk size negative": (FIRST + "Transfer-Encoding: chunked\r\n\r\n-1\r\n" + EVIL, 400),
    "chunk size in 0x": (FIRST + "Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n" + EVIL, 400),
    "chunk size with a space": (FIRST + "Transfer-Encoding: chunked\r\n\r\n 0\r\n\r\n" + EVIL, 400),
    "chunk size too large": (FIRST + "Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n" + EVIL, 400),
    "chunk size empty": (FIRST + "Transfer-Encoding: chunked\r\n\r\n\r\n" + EVIL, 400),
    "chunk size ended by LF": (FIRST + "Transfer-Encoding: chunked\r\n\r\n0\n\n" + EVIL, 400),
    "chunk size ended by CR": (FIRST + "Transfer-Encoding: chunked\r\n\r\n0\r\r" + EVIL, 400),
    "chunk longer than its size": (FIRST + "Transfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n" + CHUNKED_EVIL, 400),
    "chunk extension with LF": (FIRST + "Transfer-Encoding: chunked\r\n\r\n0;x\n\r\n\r\n" + EVIL, 400),
    "chunk data ended by LF": (FIRST + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\n" + CHUNKED_EVIL, 400),
    "trailer that is none": (
        FIRST + "Transfer-Encoding: chunked\r\n\r\n0\r\n" + EVIL.replace("\r\n\r\n", "\r\n") + "\r\n",
        400,
    ),
    "chunk size of too many zeros": (FIRST + "Transfer-Encoding: chunked\r\n\r\n" + "0" * 16 + "\r\n\r\n" + EVIL, 400),
    "chunk extension without end": (
        FIRST + "Transfer-Encoding: chunked\r\n\r\n0;" + "x" * 5000 + "\r\n\r\n" + EVIL,
        400,
    ),
    "chunk that is whole, and zeros": (
        FIRST + "Transfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n" + "0" * 16 + "\r\n\r\n" + EVIL,
        400,
    ),
    "trailer of a length": (FIRST + "Transfer-Encoding: chunked\r\n\r\n0\r\nX: " + "y" * 5000 + "\r\n\r\n" + EVIL, 400),
    "trailers without end": (
        FIRST + "Transfer-Encoding: chunked\r\n\r\n0\r\n" + "X: yyyy\r\n" * 4000 + "\r\n" + EVIL,
        400,
    ),
    # lines and targets
    "bare LF throughout": ("GET {at} HTTP/1.1\nHost: {host}\n{auth}\n" + EVIL, 400),
    "head ended by LF": (FIRST + "X: 1\n\n" + EVIL, 400),
    "CR in a value": (FIRST + "X: a\rb\r\n\r\n", 400),
    "NUL in a value": (FIRST + "X: a\x00b\r\n\r\n", 400),
    "NUL in a name": (FIRST + "X\x00: b\r\n\r\n", 400),
    "a name of no letters": (FIRST + ": b\r\n\r\n", 400),
    "a line without a colon": (FIRST + "GET /evil HTTP/1.1\r\n\r\n", 400),
    "two Hosts": (FIRST + "Host: evil\r\n\r\n", 400),
    "no Host": ("GET {at} HTTP/1.1\r\n{auth}\r\n", 400),
    "a space in the target": ("GET {at}a b HTTP/1.1\r\nHost: {host}\r\n{auth}\r\n", 400),
    "a CR in the target": ("GET {at}a\rb HTTP/1.1\r\nHost: {host}\r\n{auth}\r\n", 400),
    "a request in the target": ("GET {at}%0d%0aGET%20/evil HTTP/1.1\r\nHost: {host}\r\n{auth}\r\n", None),
    "HTTP/0.9": ("GET {at}\r\n" + EVIL, 400),
    "HTTP/2.0": ("GET {at} HTTP/2.0\r\nHost: {host}\r\n{auth}\r\n", 400),
    "a tab for a space": ("GET\t{at}\tHTTP/1.1\r\nHost: {host}\r\n{auth}\r\n", 400),
    "absolute form": ("GET http://{host}{at} HTTP/1.1\r\nHost: {host}\r\n{auth}\r\n", 404),
    "absolute form of another host": ("GET http://evil{at} HTTP/1.1\r\nHost: {host}\r\n{auth}\r\n", 404),
    "authority form": ("CONNECT 127.0.0.1:80 HTTP/1.1\r\nHost: {host}\r\n{auth}\r\n" + EVIL, 405),
    "asterisk form": ("OPTIONS * HTTP/1.1\r\nHost: {host}\r\n{auth}\r\n", 404),
    "too large a head": (FIRST + "X: " + "a" * 70000 + "\r\n\r\n", 431),
    "a length that Connection names": (
        FIRST + "Connection: Content-Length\r\nContent-Length: 5\r\n\r\nhello",
        None,
    ),
    "chunks that Connection names": (
        FIRST + "Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        None,
    ),
    "an upgrade with a body": (
        FIRST + "Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 5\r\n\r\nhello",
        None,
    ),
    "a WebSocket with a body": (HANDSHAKE + "Content-Length: 44\r\n\r\n" + EVIL.ljust(44), 400),
    "a WebSocket with chunks": (HANDSHAKE + "Transfer-Encoding: chunked\r\n\r\n" + CHUNKED_EVIL, 400),
    "a GET with a length": (
        "GET {at} HTTP/1.1\r\nHost: {host}\r\n{auth}Content-Length: 44\r\n\r\n" + EVIL.ljust(44),
        None,
    ),
}
