"""A certificate authority for a test, and a relay that puts TLS in front of a service that has none."""

import asyncio
import datetime as dt
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_SSL_REQUEST = (80877103).to_bytes(4, "big")


@dataclass(frozen=True)
class Pair:
    cert: Path
    key: Path


class Authority:
    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder / name
        self.folder.mkdir()
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._cert = self._signed(self._name, self._key.public_key(), is_ca=True)
        # The names that Docker's clients look for in DOCKER_CERT_PATH.
        self.ca = self.folder / "ca.pem"
        self.ca.write_bytes(self._cert.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str) -> Pair:
        """For `name`, and for this machine."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        cert = self._signed(subject, key.public_key(), names=[name, "localhost"])
        pair = Pair(self.folder / f"{name}.pem", self.folder / f"{name}-key.pem")
        pair.cert.write_bytes(cert.public_bytes(serialization.Encoding.PEM))
        pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
        pair.key.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
        # PostgreSQL's clients want nobody else to read it.
        pair.key.chmod(0o600)
        return pair

    def server(self, pair: Pair, *, ask_client: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.cert, pair.key)
        context.set_alpn_protocols(["h2", "http/1.1"])
        if ask_client:
            context.load_verify_locations(self.ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, *, is_ca: bool = False, names: list[str] | None = None
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        )
        if names:
            found: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
            found.append(x509.IPAddress(ip_address("127.0.0.1")))
            builder = builder.add_extension(x509.SubjectAlternativeName(found), critical=False)
        return builder.sign(self._key, hashes.SHA256())


@asynccontextmanager
async def in_front_of(
    target: str, context: ssl.SSLContext, *, postgres: bool = False, heard: bytearray | None = None
) -> AsyncIterator[int]:
    """The port on which `target` (host:port, or a socket's path) is reached by TLS only. `heard` gets what clients
    say, in the clear."""

    served: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.add(writer)
        with suppress(OSError, ssl.SSLError, asyncio.IncompleteReadError):
            if postgres:
                # Asks in the clear whether TLS is there, and begins it in the same connection.
                assert (await reader.readexactly(8))[4:] == _SSL_REQUEST
                writer.write(b"S")
                plain = writer.transport
                try:
                    await writer.start_tls(context)
                except AttributeError as gone:
                    # Whoever asked is gone, and asyncio has lost the transport that is still to be closed.
                    writer._transport = plain  # type: ignore[attr-defined]
                    raise ConnectionResetError from gone
            inner = (
                await asyncio.open_unix_connection(target)
                if target.startswith("/")
                else await asyncio.open_connection(*target.rsplit(":", 1))
            )
            await asyncio.gather(_pump(reader, inner[1], heard), _pump(inner[0], writer))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=None if postgres else context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in served:
            writer.transport.abort()
        # Also those whose handshake came to nothing, of which nobody has told us.
        async with asyncio.timeout(10):
            while server._active_count:  # type: ignore[attr-defined]
                await asyncio.sleep(0.01)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, heard: bytearray | None = None) -> None:
    try:
        while data := await reader.read(65536):
            if heard is not None:
                heard += data
            writer.write(data)
            await writer.drain()
    except (OSError, ssl.SSLError):
        pass
    finally:
        with suppress(OSError, RuntimeError):
            writer.close()
