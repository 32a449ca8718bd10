"""PROMISE 16: a home comes back as it was. CI: 15 trees and 2,000 small files; full: 200, 50,000 and one of 2 GiB."""

import asyncio
import os
from pathlib import Path

import pytest

from activities.integrity import read_archive_meta
from adapters.docker.runtime import DockerRuntime
from adapters.s3.store import S3ArchiveStore
from domain.model import DesiredState, Phase
from tests.archive.bench import Bench
from tests.archive.trees import grow, many_files, snapshot

pytestmark = pytest.mark.docker


async def round_trip(bench: Bench, seed: int) -> None:
    workspace, before = await bench.archived(lambda home: grow(home, seed))
    assert not bench.volumes.exists(workspace)
    await bench.want(workspace, DesiredState.STANDBY)
    await bench.drive(workspace, Phase.STANDBY)
    assert bench.home(workspace) == before, f"seed {seed}"
    bench.volumes.forget(workspace)


@pytest.mark.parametrize(
    "seeds",
    [
        range(15),
        pytest.param(range(100, 285), marks=[pytest.mark.full, pytest.mark.timeout(1800)]),
    ],
    ids=["15", "185"],
)
async def test_generated_homes_come_back_identical(bench: Bench, seeds: range) -> None:
    """Names of any bytes, modes, owners, mtimes to the nanosecond, links, empty directories, holes, fifos."""
    seeds_left = iter(seeds)

    async def run() -> None:
        for seed in seeds_left:
            await round_trip(bench, seed)

    await asyncio.gather(*(run() for _ in range(4)))


@pytest.mark.parametrize(
    "count",
    [2000, pytest.param(50_000, marks=[pytest.mark.full, pytest.mark.timeout(900)])],
)
async def test_many_small_files_come_back_identical(bench: Bench, count: int) -> None:
    workspace, before = await bench.archived(lambda home: many_files(home, count))
    await bench.want(workspace, DesiredState.STANDBY)
    await bench.drive(workspace, Phase.STANDBY)
    assert bench.home(workspace) == before


@pytest.mark.full
@pytest.mark.timeout(1800)
async def test_a_file_of_two_gigabytes_comes_back_identical(bench: Bench) -> None:
    def fill(home: Path) -> None:
        with (home / "big").open("wb") as file:
            for _ in range(2048):
                file.write(os.urandom(1 << 20))

    workspace, before = await bench.archived(fill)
    await bench.want(workspace, DesiredState.STANDBY)
    await bench.drive(workspace, Phase.STANDBY)
    assert bench.home(workspace) == before


async def test_a_home_read_through_the_engine_comes_back_identical_to_the_second(
    bench: Bench, docker_runtime: DockerRuntime
) -> None:
    """Where this process can't read the volume itself."""
    remote = bench.with_parts(homes=docker_runtime.homes(direct=False))
    workspace, _ = await remote.workspace(lambda home: grow(home, 77))
    before = snapshot(bench.volumes.path(workspace), nanoseconds=False)
    await remote.want(workspace, DesiredState.ARCHIVED)
    await remote.drive(workspace, Phase.ARCHIVED)
    await remote.want(workspace, DesiredState.STANDBY)
    await remote.drive(workspace, Phase.STANDBY)
    assert snapshot(bench.volumes.path(workspace), nanoseconds=False) == before


async def test_what_is_left_out_is_said(bench: Bench) -> None:
    """In the operation log, with how much was stored."""

    def fill(home: Path) -> None:
        os.mknod(home / "device", 0o020600, os.makedev(1, 3))
        (home / "file").write_text("x")

    workspace, _ = await bench.archived(fill)
    log = await bench.database.fetchrow(
        "SELECT * FROM operations WHERE workspace_id = $1 AND operation = 'ARCHIVING'", workspace
    )
    assert log is not None
    assert log["context"]["left_out"] == {"sockets": 0, "devices": 1}
    assert (log["context"]["entries"], log["context"]["files"]) == (2, 1)
    assert log["context"]["archive_size"] > 0


async def test_what_nobody_counted_is_not_said(
    bench: Bench, docker_runtime: DockerRuntime, archives: S3ArchiveStore
) -> None:
    """Of a home that the engine reads, nobody knows how many sockets it held: none would be a lie. A codehub of before
    can read that."""
    remote = bench.with_parts(homes=docker_runtime.homes(direct=False))
    workspace, _ = await remote.archived(lambda home: os.mknod(home / "device", 0o020600, os.makedev(1, 3)))
    context = await bench.database.fetchval(
        "SELECT context FROM operations WHERE workspace_id = $1 AND operation = 'ARCHIVING'", workspace
    )
    key = (await bench.row(workspace)).archive_key or ""
    meta = await read_archive_meta(archives, workspace, key)
    assert context["left_out"] == meta.left_out == {"devices": 1}


async def test_an_empty_home_comes_back_empty(bench: Bench) -> None:
    def fill(home: Path) -> None:
        os.chown(home, 1000, 1000)
        home.chmod(0o711)

    workspace, before = await bench.archived(fill)
    await bench.want(workspace, DesiredState.STANDBY)
    await bench.drive(workspace, Phase.STANDBY)
    assert bench.home(workspace) == before
    assert list(before) == [b"."]


async def test_holes_come_back_as_holes(bench: Bench) -> None:
    """A sparse file takes no room; restored as zeros it could fill the disk and never come back. (Through an engine
    that is elsewhere it is restored as zeros.)"""

    def fill(home: Path) -> None:
        with (home / "image").open("wb") as file:
            file.truncate(64 << 20)

    workspace, _ = await bench.archived(fill)
    await bench.want(workspace, DesiredState.STANDBY)
    await bench.drive(workspace, Phase.STANDBY)
    assert (bench.volumes.path(workspace) / "image").stat().st_blocks * 512 < 1 << 20


async def test_times_before_1970_come_back(bench: Bench) -> None:
    """An engine that is elsewhere makes 1970 of them."""

    def fill(home: Path) -> None:
        (home / "old").write_text("x")
        os.utime(home / "old", ns=(0, -(10**18)))

    workspace, before = await bench.archived(fill)
    await bench.want(workspace, DesiredState.STANDBY)
    await bench.drive(workspace, Phase.STANDBY)
    assert bench.home(workspace) == before
