"""What an archive says of itself: `.meta`, the commit marker beside `home.tar.zst`."""

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from domain.errors import ArchiveCorrupted
from domain.model import OperationId, WorkspaceId
from domain.naming import archive_key

FORMAT_VERSION = 1


class ArchiveMeta(BaseModel):
    model_config = ConfigDict(frozen=True)

    format_version: int = Field(ge=1)
    workspace_id: WorkspaceId
    archive_op_id: OperationId
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size: int = Field(ge=0)
    """Bytes of home.tar.zst."""
    raw_size: int = Field(ge=0)
    """Bytes of the tar in it."""
    entries: int = Field(ge=0)
    """Members of the tar: directories, links and all."""
    files: int | None = Field(None, ge=0)
    """Of these, regular files and hard links. None: made by a codehub that did not count them."""
    left_out: dict[str, int] = {}
    """Sockets and devices, which no archive can hold. What is not named was not counted; null would be more than an
    older codehub can read."""
    codehub_version: str
    created_at: datetime

    @property
    def summary(self) -> dict[str, object]:
        """For the operation log."""
        return {"archive_size": self.size, "raw_size": self.raw_size, "entries": self.entries, "files": self.files}


def read_meta(body: bytes, workspace_id: WorkspaceId, key: str) -> ArchiveMeta:
    """The meta of this workspace's archive under this key, or ArchiveCorrupted."""
    try:
        meta = ArchiveMeta.model_validate_json(body)
    except ValidationError as error:
        raise ArchiveCorrupted(f"the archive's .meta can't be read: {error.error_count()} fields are wrong") from error
    if meta.format_version > FORMAT_VERSION:
        raise ArchiveCorrupted(
            f"the archive has format {meta.format_version}, this codehub reads up to {FORMAT_VERSION}: upgrade it"
        )
    if meta.workspace_id != workspace_id:
        raise ArchiveCorrupted(f"the archive's .meta is of another workspace ({meta.workspace_id})")
    if key != archive_key(workspace_id, meta.archive_op_id):
        raise ArchiveCorrupted(f"the archive's .meta is of another archive ({meta.archive_op_id}), not of {key}")
    return meta
