"""Checksums of parts are made beside the event loop, and compared by the store as ever."""

import base64
import hashlib
import os
import zlib
from typing import Any

import pytest

from adapters.s3.signing import Summed
from adapters.s3.store import S3ArchiveStore
from domain.errors import ActionFailed
from tests.transfer.test_archive_store import KEY, MIB, nothing, pieces


async def test_a_part_is_signed_and_summed_up(archives: S3ArchiveStore) -> None:
    """As botocore would do it: whoever compares either finds what changes on the way."""
    sent: list[dict[str, bytes | str]] = []

    def note(request: Any, **_: object) -> None:
        sent.append({name.lower(): value for name, value in request.headers.items()})

    archives.client.meta.events.register("before-send.s3.UploadPart", note)
    body = os.urandom(MIB)
    await archives.upload(KEY, pieces(body), nothing)
    (headers,) = sent
    assert _text(headers["x-amz-content-sha256"]) == hashlib.sha256(body).hexdigest()
    assert _text(headers["x-amz-checksum-crc32"]) == base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()
    assert "x-amz-checksum-crc32;x-amz-content-sha256" in _text(headers["authorization"])


async def test_a_part_that_is_not_what_was_summed_up_is_refused(
    archives: S3ArchiveStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the store."""
    made = Summed.__init__

    def other(self: Summed, body: bytes) -> None:
        made(self, body)
        self.crc32 = base64.b64encode(b"none").decode()

    monkeypatch.setattr(Summed, "__init__", other)
    with pytest.raises(ActionFailed):
        await archives.upload(KEY, pieces(b"a part"), nothing)
    assert await archives.size(KEY) is None


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
