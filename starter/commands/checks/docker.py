"""The Docker engine: reachable, new enough, the image there, the network as workspaces need it."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

from docker import APIClient

from adapters.docker.config import DockerConfig
from adapters.docker.engine import Engine
from adapters.docker.failures import NotThere
from adapters.docker.labels import Labels
from adapters.docker.network import closed_bridge
from domain.errors import ActionFailed, Unreachable, WorkspaceError
from settings import Settings
from starter.commands.checks.finding import CheckFailed, Finding, Findings, Watch, bad, latency, ok, warning
from starter.commands.checks.nodes import registered
from starter.commands.words import size
from starter.ide.recipe import is_ours

OLDEST = (20, 10)
_DOCTOR = "doctor"


async def check_docker(settings: Settings) -> Findings:
    engine = Engine(DockerConfig(installation=_DOCTOR, docker_host=settings.docker_host, pool_size=2))
    try:
        try:
            took = await _pinged(engine)
        except CheckFailed:
            # Only nodes need one. Where the API runs alone, none is named, and none is missed.
            nodes = (
                [] if settings.docker_host else [one.node.name for one in await registered(settings) if not one.lost]
            )
            if not nodes:
                raise
            yield ok(f"no engine here, and no need of one: it is with the nodes ({', '.join(nodes)})")
            return
        yield ok(f"answers at {engine.where}", took)
        info = await engine.info()
        yield _version(info.version)
        yield ok(f"{info.ncpu} CPUs, {size(info.mem)} of memory")
        yield await _image(engine, settings.workspace_image)
        if settings.workspace_network == "engine":
            yield await _default_network(engine)
        else:
            yield await _network(engine)
    finally:
        await engine.close()


async def _pinged(engine: Engine) -> float:
    try:
        return await latency(lambda: engine.look(_call(lambda api: api.ping())))
    except Unreachable as error:
        advice = "Start Docker Engine, name it in DOCKER_HOST, or let this user use it (group docker)."
        raise CheckFailed(str(error), advice) from error


def _version(version: str) -> Finding:
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers >= OLDEST:
        return ok(f"version {version}")
    return warning(f"version {version} was never tried", f"Use Docker Engine {'.'.join(map(str, OLDEST))} or newer.")


async def _image(engine: Engine, image: str) -> Finding:
    try:
        found = await engine.look(_call(lambda api: api.inspect_image(image)))
    except NotThere:
        advice = "The first start pulls it, which takes its time, or fails: docker pull it now, or set WORKSPACE_IMAGE."
        if is_ours(image):
            advice = "`codehub image` makes it, and so does `codehub up`; or name another one in WORKSPACE_IMAGE."
        return warning(f"the image {image} is not on this engine", advice)
    return ok(f"image {image} is there ({size(found['Size'])})")


async def _default_network(engine: Engine) -> Finding:
    try:
        return ok(f"its default network ({await closed_bridge(engine)}) is closed between containers")
    except ActionFailed as error:
        return bad(str(error), "Else no workspace is started here. docs/operations.md, The network of workspaces.")


async def _network(engine: Engine) -> Finding:
    name = f"codehub-doctor-{uuid4().hex[:8]}"
    labels = Labels(_DOCTOR).of_network()
    try:
        with Watch() as watch:
            await engine.act(_call(lambda api: api.create_network(name, driver="bridge", labels=labels)))
            await engine.act(_call(lambda api: api.remove_network(name)))
    except ActionFailed as error:
        with suppress(WorkspaceError):
            await engine.act(_call(lambda api: api.remove_network(name)))
        advice = "Remove networks that nobody uses (docker network prune), or widen default-address-pools."
        if "no space left" in str(error):
            advice = "Make room on the engine's disk (docker system df shows what is on it)."
        return bad(f"it can't make a network: {error}", advice)
    return ok("makes and removes networks", watch.milliseconds)


def _call(call: Callable[[Any], Any]) -> Callable[[APIClient], Any]:
    """What docker-py returns has no types worth naming."""
    return call
