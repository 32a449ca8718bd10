"""The contract of Homes, on a real engine: read from the volume's directory, and through the engine alone."""

import asyncio
import io
import os
import socket
import stat
import struct
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from adapters.docker.homes import DockerHomes, is_local
from adapters.docker.labels import OPERATION
from adapters.docker.runtime import DockerRuntime
from adapters.transfer.proctar import ProcessTar
from adapters.transfer.tarscan import TarBroken, TarScanner
from domain.errors import ActionFailed, DataLost, Unreachable, Unrestorable, VolumeInUse
from domain.model import OperationId
from domain.naming import volume_name
from tests.archive.trees import grow, snapshot, too_deep
from tests.archive.volumes import Volumes, archived, extract, nothing, tar_of
from tests.faults.proxy import FaultProxy, eventually
from tests.transfer.tars import made, member

pytestmark = pytest.mark.docker

OP = OperationId("operation")
MIB = 1 << 20
ACL = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", tag, permissions, number)
    for tag, permissions, number in (
        *((1, 6, 0xFFFFFFFF), (2, 4, 1001), (4, 4, 0xFFFFFFFF)),
        *((16, 4, 0xFFFFFFFF), (32, 0, 0xFFFFFFFF)),
    )
)
"""user::rw-, user:1001:r--, group::r--, mask::r--, other::---"""
MAY_BIND = struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0)
"""cap_net_bind_service=ep"""
LARGE = 32 * MIB
"""More than the buffers between here and whoever reads it."""


@pytest.fixture(params=[True, False], ids=["direct", "engine"])
def homes(docker_runtime: DockerRuntime, request: pytest.FixtureRequest) -> DockerHomes:
    return docker_runtime.homes(direct=request.param)


def test_the_run_reads_volumes_itself(docker_host: str) -> None:
    """Otherwise both modes below would be one."""
    assert is_local(docker_host)


@pytest.mark.parametrize("seed", [1, 2])
async def test_what_was_read_is_written_again(homes: DockerHomes, volumes: Volumes, seed: int) -> None:
    """Direct: everything. Through the engine: mtimes to the second, for that is what its tars hold."""
    workspace, home = await volumes.make()
    grow(home, seed)
    before = snapshot(home, nanoseconds=homes.direct)
    tar, packed = await tar_of(homes, workspace)
    assert packed.scanner.entries == len(before)
    await homes.renew(workspace, OP, nothing)
    await extract(homes, workspace, [tar])
    assert snapshot(volumes.path(workspace), nanoseconds=homes.direct) == before
    assert volumes.holders(workspace) == []


@pytest.mark.parametrize("by_engine", [False, True])
async def test_what_else_belongs_to_a_file_is_kept(
    docker_runtime: DockerRuntime, volumes: Volumes, by_engine: bool
) -> None:
    """Attributes of its user's, access control lists, also of a directory for what is made in it, and capabilities:
    whoever extracts. (The engine's own tars hold capabilities only.)"""
    workspace, home = await volumes.make()
    (home / "file").write_text("x")
    (home / "folder").mkdir()
    kept = {
        "file": {"user.note": b"mine\n\0", "system.posix_acl_access": ACL, "security.capability": MAY_BIND},
        "folder": {"user.note": b"too", "system.posix_acl_default": ACL},
    }
    for name, attributes in kept.items():
        for attribute, value in attributes.items():
            os.setxattr(home / name, attribute, value)
    homes = docker_runtime.homes()
    tar, _ = await tar_of(homes, workspace)
    await homes.renew(workspace, OP, nothing)
    await extract(docker_runtime.homes(direct=not by_engine), workspace, [tar])
    restored = volumes.path(workspace)
    found = {
        name: {attribute: os.getxattr(restored / name, attribute) for attribute in os.listxattr(restored / name)}
        for name in kept
    }
    assert found == kept


async def test_a_removal_that_was_held_up_removes_nothing(docker_runtime: DockerRuntime, volumes: Volumes) -> None:
    """Stopped between its last look and the engine, and going on much later: by then it may be another home."""
    workspace, home = await volumes.make()
    (home / "file").write_text("kept")
    late = replace(docker_runtime.homes(), fence_seconds=-0.001)
    with pytest.raises(Unreachable, match="looked at again"):
        await late.remove(workspace, nothing)
    assert (home / "file").exists()
    await docker_runtime.homes().remove(workspace, nothing)
    assert not volumes.exists(workspace)


async def test_sockets_and_devices_are_left_out(homes: DockerHomes, volumes: Volumes) -> None:
    """With all their hard links: a link to what is left out would make the rest unrestorable. Overlay file systems
    make such devices, and link them, and need no privilege for it."""
    workspace, home = await volumes.make()
    (home / "file").write_text("kept")
    os.mknod(home / "whiteout", stat.S_IFCHR, os.makedev(0, 0))
    os.link(home / "whiteout", home / "whiteout-2")
    os.mknod(home / "block", stat.S_IFBLK, os.makedev(7, 0))
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(home / "socket"))
    os.link(home / "socket", home / "socket-2")
    tar, packed = await tar_of(homes, workspace)
    assert packed.scanner.devices == 3
    async with homes.read(workspace) as stream:
        await asyncio.to_thread(lambda: [len(chunk) for chunk in stream])
        assert stream.sockets == (2 if homes.direct else None)
    await homes.renew(workspace, OP, nothing)
    await extract(homes, workspace, [tar])
    assert os.listdir(volumes.path(workspace)) == ["file"]


async def test_a_tree_that_is_too_deep_to_be_restored_is_refused(homes: DockerHomes, volumes: Volumes) -> None:
    """The engine leaves out what lies too deep without a word, and can't extract it either. The home stays."""
    workspace, home = await volumes.make()
    too_deep(home)
    with pytest.raises(Unrestorable):
        await archived(homes, workspace)


async def test_a_missing_volume_is_lost_data(homes: DockerHomes, volumes: Volumes) -> None:
    with pytest.raises(DataLost):
        await tar_of(homes, volumes.name())


async def test_a_foreign_volume_is_left_alone(homes: DockerHomes, volumes: Volumes) -> None:
    """It has our name and somebody else's data."""
    workspace = volumes.name()
    volumes.api.create_volume(volume_name(workspace))
    (volumes.path(workspace) / "theirs").write_text("x")
    with pytest.raises(DataLost):
        await tar_of(homes, workspace)
    with pytest.raises(ActionFailed):
        await homes.renew(workspace, OP, nothing)
    with pytest.raises(ActionFailed):
        await homes.remove(workspace, nothing)
    assert (volumes.path(workspace) / "theirs").exists()


async def test_renewing_and_removing_can_be_done_again(homes: DockerHomes, volumes: Volumes) -> None:
    """Run twice: the same world. Each renewed volume is known from the one before."""
    workspace = volumes.name()
    await homes.remove(workspace, nothing)
    await homes.renew(workspace, OP, nothing)
    (volumes.path(workspace) / "partial").write_text("x")
    first = volumes.api.inspect_volume(volume_name(workspace))["Labels"]
    await homes.renew(workspace, OP, nothing)
    second = volumes.api.inspect_volume(volume_name(workspace))["Labels"]
    assert os.listdir(volumes.path(workspace)) == []
    assert first[OPERATION] != second[OPERATION]
    await homes.remove(workspace, nothing)
    await homes.remove(workspace, nothing)
    assert not volumes.exists(workspace)


async def test_writing_can_be_done_again(homes: DockerHomes, volumes: Volumes) -> None:
    workspace, _ = await volumes.make()
    for _ in range(2):
        await extract(homes, workspace, [made([(member("home/a"), b"x"), (member("home/b"), b"y")])])
    assert sorted(os.listdir(volumes.path(workspace))) == ["a", "b"]


async def test_whoever_is_late_removes_nothing(homes: DockerHomes, volumes: Volumes) -> None:
    """A fence that lets nobody pass, and one that lets pass while another attempt makes a new home."""
    workspace, home = await volumes.make()
    (home / "file").write_text("x")

    async def overtaken() -> None:
        raise InterruptedError

    for late in (homes.remove(workspace, overtaken), homes.renew(workspace, OP, overtaken)):
        with pytest.raises(InterruptedError):
            await late
    assert (home / "file").exists()

    async def replaced() -> None:
        await homes.renew(workspace, OP, nothing)
        (volumes.path(workspace) / "restored").write_text("new")

    for late in (homes.remove(workspace, replaced), homes.renew(workspace, OP, replaced)):
        with pytest.raises(ActionFailed):
            await late
        assert (volumes.path(workspace) / "restored").exists()


async def test_what_a_container_holds_is_not_removed(
    homes: DockerHomes, volumes: Volumes, docker_runtime: DockerRuntime, test_image: str
) -> None:
    """It may have written since the home was read."""
    workspace, home = await volumes.make()
    (home / "file").write_text("x")
    await homes.ensure_unused(workspace)
    await docker_runtime.start(workspace, test_image, OP)
    for removal in (
        homes.ensure_unused(workspace),
        homes.remove(workspace, nothing),
        homes.renew(workspace, OP, nothing),
    ):
        with pytest.raises(VolumeInUse, match="in use"):
            await removal
    assert (home / "file").exists()
    await docker_runtime.stop(workspace)


async def test_what_a_dead_worker_left_holds_nothing_up(homes: DockerHomes, volumes: Volumes) -> None:
    """A worker that was killed leaves its container behind, which holds the volume."""
    workspace, _ = await volumes.make()
    await homes._create(workspace, OP)
    assert volumes.holders(workspace)
    await homes.ensure_unused(workspace)
    await homes.renew(workspace, OP, nothing)
    await homes._create(workspace, OP)
    await extract(homes, workspace, [made([(member("home/a"), b"x")])])
    await homes._create(workspace, OP)
    tar, _ = await tar_of(homes, workspace)
    assert b"home/a" in tar
    if not volumes.holders(workspace):
        await homes._create(workspace, OP)
    await homes.remove(workspace, nothing)
    assert not volumes.exists(workspace)


async def test_a_writer_in_the_middle_never_writes_to_a_renewed_volume(
    homes: DockerHomes, volumes: Volumes, docker_runtime: DockerRuntime
) -> None:
    """While it holds its connection to the engine nothing is renewed (Unreachable, to be tried again); once it is gone,
    all is. Without the engine it has the former directory, and that alone."""
    workspace, _ = await volumes.make()
    tar = made([(member(f"home/{number}"), bytes(100_000)) for number in range(30)])
    began, go_on = threading.Event(), threading.Event()

    def slowly() -> Iterator[bytes]:
        yield tar[:1_000_000]
        began.set()
        go_on.wait(60)
        raise ConnectionAbortedError

    # Impatient only where it waits in vain: otherwise a busy engine may take its time.
    other = DockerRuntime(replace(docker_runtime.config, call_timeout=10 if homes.direct else 1.5))
    writer = asyncio.create_task(extract(homes, workspace, slowly()))
    try:
        await asyncio.to_thread(began.wait)
        await eventually(lambda: "3" in os.listdir(volumes.path(workspace)))
        if homes.direct:
            await other.homes().renew(workspace, OP, nothing)
        else:
            with pytest.raises(Unreachable):
                await other.homes().renew(workspace, OP, nothing)
        assert volumes.exists(workspace)
    finally:
        go_on.set()
        await other.close()
    with pytest.raises((ActionFailed, Unreachable, ConnectionAbortedError)):
        await writer
    if not homes.direct:
        await homes.renew(workspace, OP, nothing)
    assert os.listdir(volumes.path(workspace)) == []


async def test_closing_a_read_in_the_middle_leaves_nothing(homes: DockerHomes, volumes: Volumes) -> None:
    """No container, no process, no thread: also when somebody is still waiting for its bytes."""
    workspace, home = await volumes.make()
    (home / "big").write_bytes(os.urandom(8 << 20))
    before = at_work()
    async with homes.read(workspace) as stream:
        chunks = iter(stream)
        assert await asyncio.to_thread(next, chunks)
    assert volumes.holders(workspace) == []
    await eventually(lambda: at_work() <= before)


async def test_an_engine_that_falls_silent_while_a_home_is_read_can_be_left(
    docker_runtime: DockerRuntime, volumes: Volumes, docker_host: str, tmp_path: Path
) -> None:
    """Closing the stream wakes the thread that waits for its bytes, whatever the engine does."""
    workspace, home = await volumes.make()
    (home / "big").write_bytes(os.urandom(8 << 20))
    async with FaultProxy(docker_host, tmp_path / "docker.sock") as proxy:
        runtime = DockerRuntime(replace(docker_runtime.config, docker_host=proxy.url))
        began, ended = threading.Event(), threading.Event()

        def read_on(chunks: Iterator[bytes]) -> None:
            began.set()
            try:
                for _ in chunks:
                    pass
            finally:
                ended.set()

        reading: asyncio.Task[None] | None = None
        try:
            async with asyncio.timeout(60), runtime.homes().read(workspace) as stream:
                chunks = iter(stream)
                await asyncio.to_thread(next, chunks)
                proxy.black_hole()
                reading = asyncio.create_task(asyncio.to_thread(read_on, chunks))
                await asyncio.to_thread(began.wait)
                asyncio.get_running_loop().call_later(1, proxy._flowing.set)
                raise TimeoutError  # noqa: TRY301 - as the stall watch does
        except TimeoutError:
            pass
        await eventually(ended.is_set)
        assert reading
        await asyncio.gather(reading, return_exceptions=True)
        await runtime.close()


@pytest.mark.parametrize("clean", [False, True])
async def test_a_connection_to_the_engine_that_breaks_is_no_end_of_the_home(
    docker_runtime: DockerRuntime, volumes: Volumes, docker_host: str, tmp_path: Path, clean: bool
) -> None:
    """Unreachable, to be tried again; never a shorter tar."""
    workspace, home = await volumes.make()
    (home / "big").write_bytes(os.urandom(8 << 20))
    async with FaultProxy(docker_host, tmp_path / "docker.sock") as proxy:
        runtime = DockerRuntime(replace(docker_runtime.config, docker_host=proxy.url))
        assert not is_local(proxy.url)
        proxy.cut_after(down=3 << 20, clean=clean)
        with pytest.raises(Unreachable):
            await archived(runtime.homes(), workspace)
        assert proxy.cuts == 1
        assert await archived(runtime.homes(), workspace)
        await runtime.close()


async def test_a_tar_process_that_is_killed_is_no_end_of_the_home(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(os.urandom(8 << 20))
    with ProcessTar(tmp_path, "home") as stream:
        chunks = iter(stream)
        next(chunks)
        stream._tar.kill()
        with pytest.raises(ActionFailed):
            list(chunks)


@pytest.mark.parametrize("change", ["shrinks", "grows", "changes", "vanishes"])
async def test_a_file_that_changes_while_it_is_read(homes: DockerHomes, volumes: Volumes, change: str) -> None:
    """Nobody should use the home: what was read would be neither the old nor the new one, and is refused.

    The engine refuses what has become shorter. Of the rest it says nothing: the file is in its tar with the size that
    it had when its turn came, and holds what was there when each part of it was read (docs/reliability.md).
    """
    workspace, home = await volumes.make()
    whole = {name: os.urandom(LARGE) for name in ("a", "b")}
    for name, content in whole.items():
        (home / name).write_bytes(content)
    async with homes.read(workspace) as stream:
        chunks = iter(stream)
        begun = await asyncio.to_thread(_begun, chunks)
        file = home / _first(begun)
        CHANGES[change](file)
        if homes.direct:
            with pytest.raises(ActionFailed, match=r"changed|shrank|removed"):
                await asyncio.to_thread(_rest, begun, chunks)
        elif change == "shrinks":
            with pytest.raises(TarBroken):
                await asyncio.to_thread(_rest, begun, chunks)
        else:
            tar = await asyncio.to_thread(_rest, begun, chunks)
            with tarfile.open(fileobj=io.BytesIO(tar)) as opened:
                found = opened.extractfile(f"home/{file.name}")
                assert found
                content = found.read()
            assert len(content) == LARGE
            assert change == "changes" or content == whole[file.name]


async def test_a_file_that_is_gone_when_its_turn_comes(homes: DockerHomes, volumes: Volumes) -> None:
    """Refused; the engine leaves it out, and all else is whole."""
    workspace, home = await volumes.make()
    for name in ("a", "b"):
        (home / name).write_bytes(os.urandom(LARGE))
    async with homes.read(workspace) as stream:
        chunks = iter(stream)
        begun = await asyncio.to_thread(_begun, chunks)
        first = _first(begun)
        (home / ("b" if first == "a" else "a")).unlink()
        if homes.direct:
            with pytest.raises(ActionFailed, match=r"changed|removed"):
                await asyncio.to_thread(_rest, begun, chunks)
        else:
            tar = await asyncio.to_thread(_rest, begun, chunks)
            with tarfile.open(fileobj=io.BytesIO(tar)) as opened:
                assert {member.name: member.size for member in opened if member.isfile()} == {f"home/{first}": LARGE}


async def test_a_stream_that_fails_is_not_taken_for_a_whole_one(homes: DockerHomes, volumes: Volumes) -> None:
    """Whoever extracts hears of it, whatever the engine says to the part that it got."""
    workspace, _ = await volumes.make()
    tar = made([(member("home/a"), bytes(1000)), (member("home/b"), bytes(1000))])

    def broken() -> Iterator[bytes]:
        yield tar
        raise DataLost("checksum")

    with pytest.raises(DataLost):
        await extract(homes, workspace, broken())


def at_work() -> set[threading.Thread]:
    """Without those that a pool keeps for the next call."""
    return {thread for thread in threading.enumerate() if not thread.name.startswith(("docker_", "asyncio_"))}


def _begun(chunks: Iterator[bytes]) -> bytes:
    begun = b""
    while len(begun) < MIB:
        begun += next(chunks)
    return begun


def _first(begun: bytes) -> str:
    """The file that is being read: whoever reads it sends what fits into the buffers, and then waits."""
    with tarfile.open(fileobj=io.BytesIO(begun), mode="r|") as tar:
        _, file = tar.next(), tar.next()
    assert file
    return Path(file.name).name


def _rest(begun: bytes, chunks: Iterator[bytes]) -> bytes:
    scanner = TarScanner()
    tar = b"".join([scanner.feed(begun), *(scanner.feed(chunk) for chunk in chunks)])
    scanner.finish()
    return tar


def _append(file: Path) -> None:
    with file.open("ab") as opened:
        opened.write(os.urandom(MIB))


def _write_over(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.seek(LARGE - MIB)
        opened.write(os.urandom(MIB))


CHANGES: dict[str, Callable[[Path], None]] = {
    "shrinks": lambda file: os.truncate(file, 1000),
    "grows": _append,
    "changes": _write_over,
    "vanishes": Path.unlink,
}
