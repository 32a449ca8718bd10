"""The image of the workspaces, on the engine before the first one is asked for."""

import os
import time
from pathlib import Path

import aiohttp
import structlog
import zstandard

from starter.embedded.errors import EmbeddedError
from starter.embedded.progress import Progress
from starter.ide.build import BuiltTar, built_file
from starter.ide.build import build as build_file
from starter.ide.engine import Engine, EngineRefused
from starter.ide.lock import alone
from starter.ide.recipe import LABEL, OWN_FILES, REPOSITORY, Recipe, is_ours
from starter.ide.registry import NoAnswer, pull
from starter.ide.rootfs import machine_suite

log = structlog.get_logger()

NAME = "ide"


async def ensure_image(
    docker_host: str | None,
    reference: str,
    progress: Progress,
    *,
    build: bool = True,
    cache: Path | None = None,
    recipe: Recipe | None = None,
) -> None:
    """Return once the engine has the image, by the first way that works:

    1. it is there (ours: made by the present recipe);
    2. ours: this machine built it before, and has it in `cache`;
    3. pulled: `reference` itself, or for ours code-server's public image, which gets our entrypoint on top;
    4. ours: built from Debian's and npm's packages, and kept in `cache`.

    Ours is `codehub-ide:*`. Whichever way it came, it is tagged by its recipe's fingerprint, then as `reference`.
    """
    began = time.monotonic()
    try:
        async with Engine(docker_host) as engine:
            if is_ours(reference):
                maker = _Maker(engine, reference, progress, recipe or await _recipe(engine), _folder(cache))
                changed = await maker.ensure(build=build)
            else:
                changed = await _fetch(engine, reference, progress)
    except (aiohttp.ClientError, EngineRefused, OSError, TimeoutError) as error:
        reason = str(error) or repr(error)
        raise EmbeddedError(f"The Docker engine can't take the image {reference}: {reason}.") from error
    if changed:
        progress.done(NAME, time.monotonic() - began)


def default_cache() -> Path:
    """One for all of a user's installations: it holds nothing but what can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "codehub"


def _folder(cache: Path | None) -> Path:
    """A directory of our own in it: what a killed build left there is ended and removed."""
    return (cache or default_cache()).resolve() / "ide"


async def _recipe(engine: Engine) -> Recipe:
    return Recipe(architecture=await engine.architecture(), suite=machine_suite())


async def _fetch(engine: Engine, reference: str, progress: Progress) -> bool:
    if await engine.labels(reference) is not None:
        return False
    try:
        await pull(engine, reference, lambda text: progress.step(NAME, text))
    except NoAnswer as failed:
        raise EmbeddedError(
            f"WORKSPACE_IMAGE={reference} can't be pulled ({failed}): check its name, your login at its registry and "
            f"your way to it, or leave WORKSPACE_IMAGE unset for the IDE that is built in."
        ) from failed
    return True


class _Maker:
    def __init__(self, engine: Engine, reference: str, progress: Progress, recipe: Recipe, cache: Path) -> None:
        self._engine = engine
        self._reference = reference
        self._progress = progress
        self._recipe = recipe
        self._cache = cache

    async def ensure(self, *, build: bool) -> bool:
        present = await self._engine.labels(self._reference)
        # One without our label was made by somebody who knows why.
        if present is not None and present.get(LABEL, self._recipe.fingerprint) == self._recipe.fingerprint:
            return False
        try:
            async with alone(self._cache, self._step):
                await self._make(build=build)
        except (EmbeddedError, EngineRefused) as error:
            if present is None:
                raise
            # Workspaces run well on the one of the former recipe.
            log.warning("ide_image_outdated", reference=self._reference, error=str(error))
            return False
        await self._engine.tag(self._recipe.reference, self._reference)
        return True

    async def _make(self, *, build: bool) -> None:
        if await self._engine.labels(self._recipe.reference) is not None or await self._load():
            return
        try:
            await self._pull()
        except NoAnswer as failed:
            log.info("ide_image_not_pulled", image=self._recipe.public_image, reason=str(failed))
            if not build:
                raise EmbeddedError(
                    f"The IDE image {self._recipe.public_image} can't be pulled ({failed}): check your way to its "
                    f"registry, or name another image in WORKSPACE_IMAGE."
                ) from failed
            self._step("no image registry answers: building the IDE here (some minutes, once)")
            await build_file(self._recipe, self._cache, self._progress)
            if not await self._load():
                raise EmbeddedError(
                    f"The IDE image that was just built in {self._cache} is damaged: try again."
                ) from None

    async def _load(self) -> bool:
        file = built_file(self._recipe, self._cache)
        if not file.exists():
            return False
        self._step("loading the image into the engine")
        tar = BuiltTar(file)
        try:
            await self._engine.load(aiter(tar), self._recipe.reference, self._recipe.changes(origin="built"))
        except (aiohttp.ClientError, EngineRefused, zstandard.ZstdError) as error:
            # Who notices it first, the engine or we, is a matter of luck.
            if not tar.damaged:
                raise
            log.warning("ide_image_file_damaged", file=str(file), error=str(error))
            file.unlink(missing_ok=True)
            return False
        # The ones that are used last are kept.
        os.utime(file)
        return True

    async def _pull(self) -> None:
        await pull(self._engine, self._recipe.public_image, self._step)
        self._step("setting the image up")
        await self._engine.derive(
            self._recipe.public_image,
            self._recipe.reference,
            self._recipe.changes(origin="pulled"),
            OWN_FILES,
            via=f"{REPOSITORY}-{self._recipe.fingerprint}",
        )

    def _step(self, text: str) -> None:
        self._progress.step(NAME, text)
