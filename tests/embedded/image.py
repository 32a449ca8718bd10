"""The image of test workspaces: busybox's httpd, which serves the home on port 8080."""

import contextlib
import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

import docker
from docker.errors import APIError, DockerException
from docker.models.containers import Container
from docker.models.networks import Network
from docker.models.volumes import Volume

from starter.embedded.errors import EmbeddedError
from tests.debian import installed

LABEL = "codehub.installation"
HOME = "home/coder"
USER = 1000
APPLETS = (
    *("ash", "cat", "chmod", "chown", "cp", "cut", "date", "dd", "df", "du", "echo", "env", "false", "find", "grep"),
    *("head", "hostname", "httpd", "id", "ip", "kill", "ln", "ls", "md5sum", "mkdir", "mkfifo", "mv", "nc", "netstat"),
    *("ping", "printf", "ps", "pwd", "readlink", "rm", "rmdir", "sed", "seq", "sh", "sha256sum", "sleep", "sort"),
    *("stat", "sync", "tail", "tar", "test", "touch", "tr", "true", "umount", "uname", "vi", "wc", "wget", "yes"),
)
# The shell waits instead of becoming httpd: as process 1 httpd would not hear SIGTERM. busybox looks for programs in
# cgi-bin below what it serves, and the home is whatever volume is mounted there.
ENTRYPOINT = b"""#!/bin/sh
trap 'exit 0' TERM INT
[ -e /home/coder/cgi-bin ] || ln -s /srv/cgi-bin /home/coder/cgi-bin
httpd -f -p 0.0.0.0:8080 -h /home/coder &
wait
"""
PROGRAMS = {
    # What the workspace was sent: method, query and headers.
    "env": b"#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\n\\r\\n'\nenv | sort\n",
    # Its own answer to what was sent.
    "echo": b"#!/bin/sh\nprintf 'Content-Type: application/octet-stream\\r\\n\\r\\n'\ncat\n",
    # POST /cgi-bin/put?NAME writes the body to the home.
    "put": b'#!/bin/sh\ncat > "/home/coder/$QUERY_STRING"\nprintf "Content-Type: text/plain\\r\\n\\r\\nok\\n"\n',
}


def build(host: str, installation: str, entrypoint: Sequence[str] = ("/entrypoint",)) -> str:
    """Import it, and return its name."""
    with contextlib.closing(docker.DockerClient(base_url=host, timeout=120)) as client:
        client.api.import_image_from_data(
            _tar(_busybox(client)),
            repository="codehub-test",
            tag=installation,
            changes=[
                f"ENTRYPOINT {json.dumps(entrypoint)}",
                "ENV PATH=/bin",
                "EXPOSE 8080",
                f"USER {USER}:{USER}",
                "WORKDIR /home/coder",
            ],
        )
    return f"codehub-test:{installation}"


def remove_all(host: str, installation: str) -> None:
    """Everything that carries the label of this run: `installation`, or a name that starts with it and a dash."""
    with contextlib.closing(docker.DockerClient(base_url=host, timeout=60)) as client:
        for thing in _labelled(client, installation):
            with contextlib.suppress(APIError):
                match thing:
                    case Container():
                        thing.remove(force=True, v=True)
                    case Volume():
                        thing.remove(force=True)
                    case Network():
                        thing.remove()
        with contextlib.suppress(APIError):
            client.images.remove(f"codehub-test:{installation}", force=True)


def engine_has(host: str, installation: str) -> list[str]:
    """What is still there of it."""
    with contextlib.closing(docker.DockerClient(base_url=host, timeout=60)) as client:
        return [f"{type(thing).__name__} {thing.id}" for thing in _labelled(client, installation)]


def _labelled(client: docker.DockerClient, installation: str) -> list[Container | Volume | Network]:
    """In the order in which they can be removed."""

    def ours(labels: dict[str, str] | None) -> bool:
        value = (labels or {}).get(LABEL, "")
        return value == installation or value.startswith(f"{installation}-")

    containers = client.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True)
    volumes = client.volumes.list(filters={"label": LABEL})
    networks = client.networks.list(filters={"label": LABEL})
    return [
        *(container for container in containers if ours(container.labels)),
        *(volume for volume in volumes if ours(volume.attrs.get("Labels"))),
        *(network for network in networks if ours(network.attrs.get("Labels"))),
    ]


def _busybox(client: docker.DockerClient) -> bytes:
    """A static one: this machine's, Debian's package, or the one of the public image."""
    path = Path("/bin/busybox")
    if not _static(path):
        installed("busybox-static", "busybox-static")
    if _static(path):
        return path.read_bytes()
    try:
        client.images.pull("busybox", tag="stable-musl")
        container = client.containers.create("busybox:stable-musl")
    except DockerException as error:
        raise EmbeddedError(f"No static busybox: install Debian's busybox-static ({error}).") from error
    try:
        stream, _ = container.get_archive("/bin/busybox")
        with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as archive:
            file = archive.extractfile(archive.next() or "busybox")
            assert file
            return file.read()
    finally:
        container.remove(force=True)


def _static(path: Path) -> bool:
    """A program that names no interpreter needs no library."""
    return path.exists() and b"/ld-linux" not in path.read_bytes() and b"/ld-musl" not in path.read_bytes()


def _tar(busybox: bytes) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name in ("bin", "etc", "proc", "sys", "dev", "srv", "srv/cgi-bin", "home"):
            _add(archive, name, kind=tarfile.DIRTYPE)
        _add(archive, "tmp", kind=tarfile.DIRTYPE, mode=0o1777)
        _add(archive, HOME, kind=tarfile.DIRTYPE, owner=USER)
        _add(archive, "bin/busybox", busybox)
        for applet in APPLETS:
            _add(archive, f"bin/{applet}", kind=tarfile.SYMTYPE, target="busybox")
        _add(archive, "entrypoint", ENTRYPOINT)
        _add(archive, "etc/passwd", b"root:x:0:0::/:/bin/sh\ncoder:x:1000:1000::/home/coder:/bin/sh\n", mode=0o644)
        for name, program in PROGRAMS.items():
            _add(archive, f"srv/cgi-bin/{name}", program)
    return content.getvalue()


def _add(
    archive: tarfile.TarFile,
    name: str,
    data: bytes = b"",
    *,
    kind: bytes = tarfile.REGTYPE,
    mode: int = 0o755,
    owner: int = 0,
    target: str = "",
) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.mode, member.linkname, member.size = kind, mode, target, len(data)
    member.uid = member.gid = owner
    archive.addfile(member, io.BytesIO(data))
