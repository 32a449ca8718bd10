"""Whatever a tar holds, extracting it can't leave the volume: canaries on the machine and in another home stay."""

import os
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from adapters.docker.homes import DockerHomes
from adapters.docker.runtime import DockerRuntime
from adapters.transfer.pack import Packed, pack
from adapters.transfer.unpack import Unpacked, unpack
from domain.archive import ArchiveMeta
from domain.errors import ActionFailed, Unreachable
from domain.model import OperationId, WorkspaceId
from tests.archive.trees import Snapshot, snapshot
from tests.archive.volumes import Volumes, extract
from tests.transfer.tars import END, header, made, member

pytestmark = pytest.mark.docker

EVIL = b"owned"
Members = list[tuple[tarfile.TarInfo, bytes]]


def hostile(outside: str, other: str) -> dict[str, Members]:
    """`outside` is a directory of the machine, `other` the directory of another volume, both without a first slash."""
    up = "../" * 40
    link, hard, folder = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE
    chain: Members = [(member(f"home/{n}", link, link="x/" * 30 + f"../{n + 1}"), b"") for n in range(60)]
    return {
        "absolute name": [(member(f"/{outside}/canary"), EVIL), (member(f"/{other}/canary"), EVIL)],
        "dots": [(member(f"{up}{outside}/canary"), EVIL), (member(f"home/{up}{other}/canary"), EVIL)],
        "hidden dots": [(member(f"home/a/./../../..//{up}{outside}/canary"), EVIL)],
        "symlink, then through it": [
            (member("home/door", link, link=f"/{outside}"), b""),
            (member("home/door/canary"), EVIL),
            (member("home/up", link, link=up), b""),
            (member(f"home/up/{outside}/canary"), EVIL),
        ],
        "folder, then symlink in its place": [
            (member("home/door", folder), b""),
            (member("home/door", link, link=f"/{other}"), b""),
            (member("home/door/canary"), EVIL),
        ],
        "symlink to a file, then over it": [
            (member("home/file", link, link=f"/{outside}/canary"), b""),
            (member("home/file"), EVIL),
        ],
        "hard link to outside": [
            (member("home/hard", hard, link=f"/{outside}/canary"), b""),
            (member("home/hard"), EVIL),
            (member("home/hard2", hard, link=f"{up}{other}/canary"), b""),
            (member("home/hard2"), EVIL),
        ],
        "hard link through a symlink": [
            (member("home/door", link, link=f"/{outside}"), b""),
            (member("home/hard", hard, link="home/door/canary"), b""),
            (member("home/hard"), EVIL),
        ],
        "hard link to a symlink": [
            (member("home/soft", link, link=f"/{outside}/canary"), b""),
            (member("home/hard", hard, link="home/soft"), b""),
            (member("home/hard"), EVIL),
        ],
        "the home itself as a symlink": [
            (member("home", link, link=f"/{other}"), b""),
            (member("home/canary"), EVIL),
        ],
        "long chain of symlinks": [
            *chain,
            (member("home/60", link, link=up), b""),
            (member(f"home/0/{outside}/canary"), EVIL),
        ],
        "kernel doors": [
            (member(f"proc/self/root/{outside}/canary"), EVIL),
            (member("home/root", link, link="/proc/1/root"), b""),
            (member(f"home/root/{outside}/canary"), EVIL),
            (member("home/cwd", link, link="/proc/self/cwd"), b""),
            (member(f"home/cwd/{up}{outside}/canary"), EVIL),
        ],
        "pax says another name": [
            (member("home/a", pax={"path": f"/{outside}/canary"}), EVIL),
            (member("home/b", pax={"path": f"{up}{other}/canary"}), EVIL),
            (member("home/c", link, link="x", pax={"linkpath": f"/{outside}"}), b""),
            (member("home/c/canary"), EVIL),
        ],
        "modes and owners through a symlink": [
            (member("home/door", link, link=f"/{outside}"), b""),
            (member("home/door", folder), b""),
            (member("home/door/", folder), b""),
        ],
    }


KINDS = list(hostile("", ""))


@pytest.fixture(params=[True, False], ids=["direct", "engine"])
def homes(request: pytest.FixtureRequest, docker_runtime: DockerRuntime) -> DockerHomes:
    return docker_runtime.homes(direct=request.param)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    return canary(tmp_path / "outside")


def canary(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "canary").write_text("alive")
    (folder / "canary").chmod(0o640)
    os.utime(folder / "canary", ns=(0, 10**18))
    os.utime(folder, ns=(0, 10**18))
    return folder


@pytest.mark.parametrize("kind", KINDS)
async def test_nothing_leaves_the_volume(homes: DockerHomes, volumes: Volumes, outside: Path, kind: str) -> None:
    """Names, links and modes that point elsewhere change nothing there, whether they are taken or refused."""
    workspace, _ = await volumes.make()
    _, other = await volumes.make()
    canary(other)
    places = [outside, other]
    before = [snapshot(place) for place in places]
    members = hostile(str(outside).lstrip("/"), str(other).lstrip("/"))[kind]
    for split in range(max(1, len(members) - 3), len(members) + 1):
        # Alone and together: one that is refused must not hide what the next would do.
        with suppress(ActionFailed, Unreachable):
            await extract(homes, workspace, restored(made(members[:split])))
        with suppress(ActionFailed, Unreachable):
            await extract(homes, workspace, restored(made(members[split - 1 :])))
    assert [snapshot(place) for place in places] == before
    assert not Path("/owned").exists()
    assert volumes.holders(workspace) == []
    assert devices(snapshot(volumes.path(workspace))) == []


async def test_devices_in_an_archive_are_not_made(homes: DockerHomes, volumes: Volumes) -> None:
    """An archive that was made elsewhere may hold them: a disk that a workspace could write to."""
    workspace, home = await volumes.make()
    members = [
        (member("home/disk", tarfile.BLKTYPE), b""),
        (member("home/memory", tarfile.CHRTYPE), b""),
        (member("home/again", tarfile.LNKTYPE, link="home/disk"), b""),
        (member("home/file"), b"x"),
    ]
    await extract(homes, workspace, restored(made(members)))
    assert os.listdir(home) == ["file"]


async def test_damaged_headers_are_the_engines_problem_alone(
    docker_runtime: DockerRuntime, homes: DockerHomes, volumes: Volumes, outside: Path
) -> None:
    """Sizes that are none, names with zero bytes: refused, and the engine lives on."""
    workspace, _ = await volumes.make()
    for tar in (
        header(b"home/huge", b"0", b"\x80" + (2**62).to_bytes(11, "big")) + b"x" * 512,
        header(b"home/\0hidden", b"0", b"00000000001") + b"x".ljust(512, b"\0") + END,
        header(b"", b"0", b"00000000001") + b"x".ljust(512, b"\0") + END,
        header(b"home/odd", b"Z", b"00000000001") + b"x".ljust(512, b"\0") + END,
        b"noise" * 1000,
    ):
        with suppress(ActionFailed, Unreachable):
            await extract(homes, workspace, [tar])
    assert (await docker_runtime.ping()).version
    assert (outside / "canary").read_text() == "alive"


@pytest.mark.parametrize("count", [10_000, pytest.param(1_000_000, marks=[pytest.mark.full, pytest.mark.timeout(900)])])
async def test_a_bomb_of_names_is_just_many_names(homes: DockerHomes, volumes: Volumes, count: int) -> None:
    """Streamed, not collected: this process grows by next to nothing."""
    workspace, home = await volumes.make()

    def names() -> Iterator[bytes]:
        for number in range(count):
            folder = b"home/%03d" % (number % 1000)
            if number < 1000:
                yield header(folder + b"/", b"5", b"0")
            yield header(folder + b"/" + b"n" * 60 + b"%d" % number, b"0", b"0")
        yield END

    before = _resident()
    async with homes.write(workspace, OperationId("bomb")) as sink:
        await sink.extract(names())
    assert sum(len(files) for _, _, files in os.walk(home)) == count
    assert _resident() - before < 64 << 20


def restored(tar: bytes) -> Iterator[bytes]:
    """As an archive of it would come out of the store."""
    packed = Packed()
    body = b"".join(pack([tar], packed))
    meta = ArchiveMeta(
        format_version=1,
        workspace_id=WorkspaceId("w"),
        archive_op_id=OperationId("o"),
        sha256=packed.sha256,
        size=packed.size,
        raw_size=packed.raw_size,
        entries=0,
        codehub_version="1",
        created_at=datetime.now(UTC),
    )
    return unpack([body], meta, Unpacked())


def devices(found: Snapshot) -> list[bytes]:
    return [name for name, (mode, *_) in found.items() if str(mode)[0] in "bc"]


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
