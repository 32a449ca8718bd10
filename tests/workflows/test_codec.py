"""What Temporal stores can be encrypted, under keys that can be changed."""

import base64
import os

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.exceptions import ApplicationError

from domain.model import WorkspaceId
from settings import SettingsError, load_settings, payload_keys
from workflows.codec import EncryptingCodec, PayloadUnreadable, data_converter
from workflows.messages import WorkspaceInput

OLD, NEW = os.urandom(32), os.urandom(32)
SECRET = WorkspaceInput(WorkspaceId("a secret"))


async def test_what_is_stored_shows_nothing_and_comes_back() -> None:
    converter = data_converter([NEW])
    stored = await converter.encode([SECRET])
    assert b"secret" not in stored[0].SerializeToString()
    assert await converter.decode(stored, [WorkspaceInput]) == [SECRET]
    again = await converter.encode([SECRET])
    assert stored[0].data != again[0].data, "the same value twice can't be told to be the same"


async def test_failures_show_nothing_but_their_type() -> None:
    """Message, stack trace and causes are encrypted like everything else; what Temporal retries by stays readable."""
    converter, stored = data_converter([NEW]), Failure()
    with pytest.raises(ApplicationError) as failed:
        raise ApplicationError("a secret message", type="ActionFailed", non_retryable=True) from OSError("secret path")
    await converter.encode_failure(failed.value, stored)
    said = stored.SerializeToString()
    assert b"secret" not in said
    assert __file__.encode() not in said
    assert (stored.application_failure_info.type, stored.application_failure_info.non_retryable) == (
        "ActionFailed",
        True,
    )
    back = await converter.decode_failure(stored)
    assert isinstance(back, ApplicationError)
    assert (back.message, str(back.cause)) == ("a secret message", "OSError: secret path")


async def test_failures_of_before_encryption_are_read() -> None:
    stored = Failure()
    await data_converter([]).encode_failure(ApplicationError("as it was"), stored)
    assert str(await data_converter([NEW]).decode_failure(stored)) == "as it was"


async def test_keys_can_be_changed_while_histories_live() -> None:
    """The new key first, the old one after it: both are read, and the new one writes."""
    stored = await data_converter([OLD]).encode([SECRET])
    both = data_converter([NEW, OLD])
    assert await both.decode(stored, [WorkspaceInput]) == [SECRET]
    assert await data_converter([NEW]).decode(await both.encode([SECRET]), [WorkspaceInput]) == [SECRET]


async def test_encryption_can_be_turned_on() -> None:
    """What was stored in the clear is still read."""
    stored = await data_converter([]).encode([SECRET])
    assert await data_converter([NEW]).decode(stored, [WorkspaceInput]) == [SECRET]


async def test_what_was_tampered_with_is_refused() -> None:
    codec = EncryptingCodec([NEW])
    [stored] = await codec.encode([Payload(data=b"x")])
    for index in range(len(stored.data)):
        data = bytearray(stored.data)
        data[index] ^= 1
        with pytest.raises(PayloadUnreadable):
            await codec.decode([Payload(metadata=stored.metadata, data=bytes(data))])
    with pytest.raises(PayloadUnreadable, match="TEMPORAL_PAYLOAD_KEYS has no key"):
        await EncryptingCodec([OLD]).decode([stored])


@pytest.mark.parametrize("given", ["short", base64.b64encode(b"x" * 16).decode(), "!!!"])
def test_a_key_that_is_none_stops_the_start_and_is_not_shown(given: str) -> None:
    with pytest.raises(SettingsError, match="TEMPORAL_PAYLOAD_KEYS") as refused:
        load_settings({"TEMPORAL_PAYLOAD_KEYS": given})
    assert given not in str(refused.value)


def test_keys_are_separated_by_commas() -> None:
    given = ",".join(base64.b64encode(key).decode() for key in (NEW, OLD))
    assert payload_keys(load_settings({"TEMPORAL_PAYLOAD_KEYS": given}).temporal_payload_keys) == (NEW, OLD)
