"""The files of a home, wherever it is: in its volume or in its archive."""

import io
import tarfile
from asyncio import to_thread

import zstandard

from domain.model import Phase, Workspace
from tests.processes.deployment import Deployment


async def files_of(deployment: Deployment, row: Workspace) -> dict[str, str]:
    if row.phase in {Phase.RUNNING, Phase.STANDBY}:
        async with deployment.runtime.homes().read(row.id) as stream:
            return _texts(await to_thread(b"".join, stream))
    if row.phase is Phase.ARCHIVED and row.archive_key and deployment.archives:
        packed = b"".join([chunk async for chunk in deployment.archives.download(row.archive_key)])
        return _texts(zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True).read())
    return {}


def _texts(tar: bytes) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        members = [(member, archive.extractfile(member)) for member in archive if member.isfile()]
        return {
            member.name.removeprefix("home/"): file.read().decode(errors="backslashreplace")
            for member, file in members
            if file
        }
