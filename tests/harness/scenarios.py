"""Each operation, from where it begins to where it ends, and what a workspace is asked for afterwards."""

import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from domain.model import DesiredState, Operation, Phase

RUNNING, STANDBY, ARCHIVED, DELETED = (
    DesiredState.RUNNING,
    DesiredState.STANDBY,
    DesiredState.ARCHIVED,
    DesiredState.DELETED,
)

IMAGE, MISSING_IMAGE = "image", "no-such-image"


@dataclass(frozen=True)
class Scenario:
    before: tuple[DesiredState, ...]
    """What it is asked for first, one after the other."""
    wanted: DesiredState
    afterwards: DesiredState | None
    """Where it has moved on to when a zombie wakes up."""
    operation: Operation
    ends_in: Phase
    image: str = IMAGE


SCENARIOS: Mapping[str, Scenario] = MappingProxyType(
    {
        "provision": Scenario((), STANDBY, DELETED, Operation.PROVISIONING, Phase.STANDBY),
        "create empty archive": Scenario((), ARCHIVED, STANDBY, Operation.CREATE_EMPTY_ARCHIVE, Phase.ARCHIVED),
        "start": Scenario((STANDBY,), RUNNING, STANDBY, Operation.STARTING, Phase.RUNNING),
        "stop": Scenario((RUNNING,), STANDBY, RUNNING, Operation.STOPPING, Phase.STANDBY),
        "archive": Scenario((STANDBY,), ARCHIVED, STANDBY, Operation.ARCHIVING, Phase.ARCHIVED),
        "restore": Scenario((STANDBY, ARCHIVED), STANDBY, ARCHIVED, Operation.RESTORING, Phase.STANDBY),
        "delete": Scenario((RUNNING,), DELETED, None, Operation.DELETING, Phase.DELETED),
        "fail": Scenario((STANDBY,), RUNNING, None, Operation.STARTING, Phase.ERROR, MISSING_IMAGE),
    }
)


def home() -> bytes:
    """A home with something in it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind, body in (
            ("home", tarfile.DIRTYPE, b""),
            ("home/notes", tarfile.REGTYPE, b"remember"),
            ("home/big", tarfile.REGTYPE, bytes(range(256)) * 200),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.size = kind, len(body)
            member.mode, member.uid, member.gid = 0o755, 1000, 1000
            tar.addfile(member, io.BytesIO(body))
    return out.getvalue()


def files(tar: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(tar)) as opened:
        members = [(member.name, opened.extractfile(member)) for member in opened if member.isfile()]
        return {name: file.read() for name, file in members if file}
