"""Archive and restore on real Docker volumes and a real S3 store."""

import hashlib
import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import docker
import pytest

from adapters.s3.store import S3ArchiveStore
from domain.model import DesiredState, ErrorReason, Phase
from domain.naming import meta_key, volume_name
from tests.integration.system import System

pytestmark = pytest.mark.docker


@pytest.fixture
def engine(docker_host: str) -> Iterator[docker.DockerClient]:
    with closing(docker.DockerClient(base_url=docker_host)) as client:
        yield client


def home_of(engine: docker.DockerClient, workspace: str) -> Path:
    return Path(engine.volumes.get(volume_name(workspace)).attrs["Mountpoint"])  # type: ignore[arg-type]


def snapshot(root: Path) -> dict[bytes, tuple[object, ...]]:
    """Everything that has to survive a round trip."""
    found: dict[bytes, tuple[object, ...]] = {}
    top = os.fsencode(root)
    for folder, folders, files in os.walk(top):
        for name in [b".", *folders, *files]:
            path = os.path.join(folder, name)
            info = os.lstat(path)
            if stat.S_ISSOCK(info.st_mode):
                continue
            content: object = None
            if stat.S_ISLNK(info.st_mode):
                content = os.readlink(path)
            elif stat.S_ISREG(info.st_mode):
                content = hashlib.sha256(Path(os.fsdecode(path)).read_bytes()).hexdigest()
            links = info.st_nlink if stat.S_ISREG(info.st_mode) else 0
            found[os.path.relpath(path, top)] = (
                stat.filemode(info.st_mode),
                info.st_uid,
                info.st_gid,
                info.st_mtime_ns,
                links,
                content,
            )
    return found


def fill(home: Path) -> None:
    (home / "empty").mkdir()
    (home / "deep/er").mkdir(parents=True)
    (home / "deep/er/file").write_text("hello")
    os.link(home / "deep/er/file", home / "hard")
    (home / "relative").symlink_to("../../../../usr/bin/env")
    (home / "absolute").symlink_to("/etc/hostname")
    (home / "dangling").symlink_to("nowhere")
    Path(os.fsdecode(os.fsencode(home) + b"/\xff\xfe not utf-8 \n")).write_text("bytes")
    (home / ("n" * 200)).write_text("long name")
    with (home / "sparse").open("wb") as file:
        file.truncate(20 * 1024 * 1024)
        file.seek(5 * 1024 * 1024)
        file.write(b"island")
    (home / "random").write_bytes(os.urandom(3 * 1024 * 1024))
    (home / "set-id").write_text("x")
    for path, mode in {"set-id": 0o6755, "hard": 0o640, "empty": 0o1777, "deep": 0o2750}.items():
        os.chmod(home / path, mode)
    os.chown(home / "hard", 1000, 1001)
    os.chown(home, 1000, 1000)
    os.chmod(home, 0o750)
    for number, path in enumerate(["hard", "random", "empty", "deep", "."]):
        os.utime(home / path, ns=(0, 1_600_000_000_123_456_789 + number))


async def test_a_home_goes_through_archive_and_restore_unchanged(
    with_archives: System, archives: S3ArchiveStore, engine: docker.DockerClient
) -> None:
    """Contents, owners, modes, mtimes, links, names, empty directories and holes: byte for byte as they were."""
    workspace = await with_archives.create(DesiredState.STANDBY)
    await with_archives.until_phase(workspace, Phase.STANDBY)
    fill(home_of(engine, workspace))
    before = snapshot(home_of(engine, workspace))

    await with_archives.want(workspace, DesiredState.ARCHIVED)
    row = await with_archives.until_phase(workspace, Phase.ARCHIVED)
    assert row.archive_key is not None
    assert row.node is None
    assert not engine.volumes.list(filters={"name": volume_name(workspace)})
    assert await archives.read(meta_key(row.archive_key)) is not None

    await with_archives.want(workspace, DesiredState.STANDBY)
    await with_archives.until_phase(workspace, Phase.STANDBY)
    assert snapshot(home_of(engine, workspace)) == before

    await with_archives.want(workspace, DesiredState.RUNNING)
    await with_archives.until_phase(workspace, Phase.RUNNING)


async def test_an_archive_is_an_ordinary_file(
    with_archives: System, archives: S3ArchiveStore, engine: docker.DockerClient, tmp_path: Path
) -> None:
    """`zstd -d | tar x` gives the home back without codehub."""
    workspace = await with_archives.create(DesiredState.STANDBY)
    await with_archives.until_phase(workspace, Phase.STANDBY)
    fill(home_of(engine, workspace))
    before = snapshot(home_of(engine, workspace))
    await with_archives.want(workspace, DesiredState.ARCHIVED)
    row = await with_archives.until_phase(workspace, Phase.ARCHIVED)
    body = b"".join([chunk async for chunk in archives.download(row.archive_key or "")])
    (tmp_path / "home.tar.zst").write_bytes(body)
    subprocess.run("zstd -dc home.tar.zst | tar xp", shell=True, cwd=tmp_path, check=True)
    assert snapshot(tmp_path / "home") == before


async def test_a_workspace_that_never_had_a_home_is_archived_as_an_empty_one(
    with_archives: System, engine: docker.DockerClient
) -> None:
    workspace = await with_archives.create(DesiredState.ARCHIVED)
    await with_archives.until_phase(workspace, Phase.ARCHIVED)
    await with_archives.want(workspace, DesiredState.RUNNING)
    await with_archives.until_phase(workspace, Phase.RUNNING)


async def test_damage_is_found_and_never_run_on(
    with_archives: System, archives: S3ArchiveStore, engine: docker.DockerClient
) -> None:
    """One flipped byte in the store: ArchiveCorrupted, no volume, the archive is kept; mended, recover restores it."""
    workspace = await with_archives.create(DesiredState.STANDBY)
    await with_archives.until_phase(workspace, Phase.STANDBY)
    fill(home_of(engine, workspace))
    before = snapshot(home_of(engine, workspace))
    await with_archives.want(workspace, DesiredState.ARCHIVED)
    row = await with_archives.until_phase(workspace, Phase.ARCHIVED)
    key = row.archive_key or ""
    body = b"".join([chunk async for chunk in archives.download(key)])
    damaged = bytearray(body)
    damaged[len(damaged) // 2] ^= 1
    await archives.write(key, bytes(damaged))
    await with_archives.want(workspace, DesiredState.RUNNING)
    row = await with_archives.until_phase(workspace, Phase.ERROR)
    assert row.error_reason is ErrorReason.ARCHIVE_CORRUPTED
    assert not engine.volumes.list(filters={"name": volume_name(workspace)})
    await archives.write(key, body)
    await with_archives.recover(workspace)
    await with_archives.until_phase(workspace, Phase.RUNNING)
    restored = snapshot(home_of(engine, workspace))
    assert {name: restored[name][5] for name in before} == {name: before[name][5] for name in before}
