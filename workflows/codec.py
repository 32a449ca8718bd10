"""Optional encryption of everything that Temporal stores: AES-256-GCM, keys of one's own (TEMPORAL_PAYLOAD_KEYS).

Search attributes, ids, names of workflows and activities and types of failures stay readable: Temporal has to find
things by them.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from temporalio.api.common.v1 import Payload
from temporalio.converter import DataConverter, DefaultFailureConverterWithEncodedAttributes, PayloadCodec

KEY_BYTES = 32
ENCODING = b"binary/encrypted"
_NONCE_BYTES = 12


class PayloadUnreadable(Exception):
    """A history was written under a key that is not among TEMPORAL_PAYLOAD_KEYS, or was tampered with."""


def data_converter(keys: Sequence[bytes]) -> DataConverter:
    if not keys:
        return DataConverter.default
    return replace(
        DataConverter.default,
        payload_codec=EncryptingCodec(keys),
        # Else messages and stack traces of failures would stay readable: a codec sees payloads only.
        failure_converter_class=DefaultFailureConverterWithEncodedAttributes,
    )


class EncryptingCodec(PayloadCodec):
    """The first key encrypts; all of them decrypt, so that keys can be changed while old histories live. What is not
    encrypted is read as it is, so that encryption can be turned on."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._ciphers = {_name(key): AESGCM(key) for key in keys}
        self._current = _name(keys[0])

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [self._encrypted(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [
            self._decrypted(payload) if payload.metadata.get("encoding") == ENCODING else payload
            for payload in payloads
        ]

    def _encrypted(self, payload: Payload) -> Payload:
        nonce = os.urandom(_NONCE_BYTES)
        data = self._ciphers[self._current].encrypt(nonce, payload.SerializeToString(), self._current)
        return Payload(metadata={"encoding": ENCODING, "key": self._current}, data=nonce + data)

    def _decrypted(self, payload: Payload) -> Payload:
        name = payload.metadata.get("key", b"")
        cipher = self._ciphers.get(name)
        if cipher is None:
            raise PayloadUnreadable(f"TEMPORAL_PAYLOAD_KEYS has no key {name.decode(errors='replace')!r}")
        nonce, data = payload.data[:_NONCE_BYTES], payload.data[_NONCE_BYTES:]
        try:
            return Payload.FromString(cipher.decrypt(nonce, data, name))
        except InvalidTag as error:
            raise PayloadUnreadable(f"the payload is not what key {name.decode()} wrote") from error


def _name(key: bytes) -> bytes:
    """Tells keys apart without telling them."""
    return sha256(b"codehub payload key" + key).hexdigest()[:12].encode()
