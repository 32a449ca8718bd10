"""The image as one file, built without a registry: `ide/{fingerprint}.tar.zst` in the cache."""

import asyncio
import os
import platform
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import structlog
import zstandard

from starter.embedded.child import Folders
from starter.embedded.errors import EmbeddedError
from starter.embedded.progress import Progress
from starter.embedded.record import end_leftovers
from starter.ide.codeserver import make_codeserver
from starter.ide.command import Command
from starter.ide.recipe import Recipe
from starter.ide.rootfs import make_rootfs

log = structlog.get_logger()

Part = Callable[[Recipe, Path, Path, Folders, Callable[[str], None]], Awaitable[None]]

NEEDED_BYTES = 3 * 1024**3
KEPT = 2
CHUNK = 1 << 18
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def built_file(recipe: Recipe, cache: Path) -> Path:
    return cache / f"{recipe.fingerprint}.tar.zst"


async def build(recipe: Recipe, cache: Path, progress: Progress) -> Path:
    """The caller holds the cache's lock."""
    _check_machine(recipe, cache)
    folders = Folders(cache)
    # A build that was killed may have left its commands running, and its files.
    await asyncio.to_thread(end_leftovers, folders.run)
    work = cache / "build"
    await asyncio.to_thread(shutil.rmtree, work, ignore_errors=True)
    await asyncio.to_thread(work.mkdir, mode=0o711)
    log.info("ide_build_started", fingerprint=recipe.fingerprint, suite=recipe.suite, logs=str(folders.logs))
    try:
        system, editor = work / "system.tar", work / "editor.tar"
        async with asyncio.TaskGroup() as group:
            group.create_task(_part("ide debian", make_rootfs, system, recipe, work, folders, progress))
            group.create_task(_part("ide editor", make_codeserver, editor, recipe, work, folders, progress))
        progress.step("ide", "packing the image")
        await Command(
            name="ide-tar",
            argv=("tar", "--concatenate", f"--file={system}", os.fspath(editor)),
            within=600,
        ).run(folders)
        return await asyncio.to_thread(_keep, system, built_file(recipe, cache))
    except (ExceptionGroup, EmbeddedError, OSError) as error:
        raise _cause(error) from error
    finally:
        await asyncio.to_thread(shutil.rmtree, work, ignore_errors=True)


class BuiltTar:
    """The filesystem in a built file, as a stream that knows whether the file is whole."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.damaged = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        reader = zstandard.ZstdDecompressor().decompressobj()
        try:
            with self.file.open("rb") as source:
                while chunk := source.read(CHUNK):
                    yield reader.decompress(chunk)
                    await asyncio.sleep(0)
            if not reader.eof:
                raise zstandard.ZstdError(f"{self.file} breaks off")  # noqa: TRY301 - as with any other damage
        except zstandard.ZstdError:
            self.damaged = True
            raise


async def _part(
    name: str, make: Part, target: Path, recipe: Recipe, work: Path, folders: Folders, progress: Progress
) -> None:
    began = time.monotonic()
    await make(recipe, target, work, folders, lambda text: progress.step(name, text))
    progress.done(name, time.monotonic() - began)


def _check_machine(recipe: Recipe, cache: Path) -> None:
    _ = recipe.node
    machine = MACHINES.get(platform.machine())
    if platform.system() != "Linux" or machine != recipe.architecture:
        raise EmbeddedError(
            f"An IDE image for {recipe.architecture} can't be built on this {platform.system()} {platform.machine()} "
            f"machine: name an image in WORKSPACE_IMAGE."
        )
    free = shutil.disk_usage(cache).free
    if free < NEEDED_BYTES:
        raise EmbeddedError(
            f"The IDE image can't be built: {NEEDED_BYTES // 1024**2} MB are needed at {cache}, and "
            f"{free // 1024**2} MB are free."
        )


def _keep(tar: Path, target: Path) -> Path:
    """Under its name only once it is whole and on the disk."""
    partial = tar.with_name("partial.tar.zst")
    with tar.open("rb") as source, partial.open("wb") as file:
        zstandard.ZstdCompressor(level=3, threads=-1, write_checksum=True).copy_stream(source, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(target)
    kept = sorted(target.parent.glob("*.tar.zst"), key=lambda file: file.stat().st_mtime, reverse=True)
    for old in kept[KEPT:]:
        old.unlink(missing_ok=True)
    return target


def _cause(error: Exception) -> Exception:
    """The first of a group: the other part was stopped because of it. What nobody foresaw stays as it is."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, EmbeddedError | OSError):
        return EmbeddedError(f"The IDE image can't be built: {error}")
    return error
