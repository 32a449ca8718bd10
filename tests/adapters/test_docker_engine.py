"""Calls to the engine: many at once, cut off, left hanging, given up."""

import asyncio
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from docker.errors import APIError, DockerException
from requests import Response
from requests.exceptions import ConnectionError as RequestsConnectionError
from requests.exceptions import ReadTimeout

from adapters.docker import DockerConfig, DockerRuntime
from adapters.docker.failures import Conflict, NoImage, NotThere, translate
from domain.errors import ActionFailed, Unreachable
from domain.model import OperationId
from domain.observation import UNKNOWN_RESOURCES, Resources
from tests.adapters.docker_relay import Relay
from tests.adapters.docker_world import DockerWorld, new_workspace

OP = OperationId("op-1")


@pytest.mark.docker
async def test_ping(world: DockerWorld) -> None:
    """The engine introduces itself."""
    info = await world.runtime.ping()
    assert info.id
    assert info.ncpu > 0
    assert info.mem > 0
    assert info.version == world.api.version()["Version"]


@pytest.mark.docker
async def test_many_calls_at_once(world: DockerWorld) -> None:
    """More than there are threads, each about another workspace: all are answered, and the loop stays free."""
    beats = 0

    async def heartbeat() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0.01)
            beats += 1

    beating = asyncio.ensure_future(heartbeat())
    seen = await asyncio.gather(*(world.runtime.observe(new_workspace(), probe=True) for _ in range(200)))
    beating.cancel()
    assert seen == [Resources()] * 200
    # Were they made in the loop, there would be one (seen), however fast or slow the machine is.
    assert beats > 2


async def test_engine_that_was_never_there(tmp_path: Path) -> None:
    """Made without an engine; observing says unknown, acting says where nobody answered and what to check."""
    runtime = DockerRuntime(DockerConfig("test", docker_host=f"unix://{tmp_path}/none.sock"))
    ws = new_workspace()
    assert await runtime.observe(ws, probe=True) == UNKNOWN_RESOURCES
    with pytest.raises(Unreachable, match=r"Docker did not answer at unix://.*none\.sock: is it running\?"):
        await runtime.ping()
    with pytest.raises(Unreachable, match="did not answer"):
        async with runtime.watch():
            pass
    await runtime.close()


@pytest.mark.docker
async def test_engine_that_comes_up_later(world: DockerWorld, tmp_path: Path) -> None:
    """The same runtime finds it."""
    relay = Relay(world.host, tmp_path / "docker.sock")
    runtime = world.another(docker_host=relay.url)
    with pytest.raises(Unreachable):
        await runtime.ping()
    async with relay:
        assert (await runtime.ping()).id
    await runtime.close()


@pytest.mark.docker
async def test_engine_that_hangs(world: DockerWorld, tmp_path: Path) -> None:
    """Nobody waits longer than the timeout, however many there are; then all is as before."""
    limit = 2.0
    async with Relay(world.host, tmp_path / "docker.sock") as relay:
        runtime = world.another(docker_host=relay.url, call_timeout=limit, work_timeout=limit, pool_size=8)
        for connected in (False, True):
            relay.hang()
            began = time.monotonic()
            seen = await asyncio.gather(*(runtime.observe(new_workspace(), probe=True) for _ in range(4)))
            assert seen == [UNKNOWN_RESOURCES] * 4, connected
            with pytest.raises(Unreachable, match="in time"):
                await runtime.create_volume(new_workspace(), OP)
            # All that looked at once, and then the one that acted; one after the other they would take five of these.
            assert time.monotonic() - began < 4 * limit
            await relay.restore()
            await _answers(runtime)
        await runtime.close()


async def _answers(runtime: DockerRuntime) -> None:
    """An engine that has a lot to do may itself take longer than this runtime waits."""
    async with asyncio.timeout(60):
        while True:
            with suppress(Unreachable):
                assert (await runtime.ping()).id
                return


@pytest.mark.docker
async def test_cancelled_reading_leaves_at_once(world: DockerWorld, tmp_path: Path) -> None:
    """A deadline of the caller's is kept, whatever the engine does."""
    async with Relay(world.host, tmp_path / "docker.sock") as relay:
        runtime = world.another(docker_host=relay.url, call_timeout=60)
        await runtime.ping()
        relay.hang()
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await runtime.observe_all()
        assert time.monotonic() - began < 30
        await relay.restore()
        await runtime.close()


@pytest.mark.docker
async def test_cancelled_acting_waits_for_the_outcome(world: DockerWorld) -> None:
    """When the cancelled call has ended, its effect is there or never comes."""
    entered, leave = threading.Event(), threading.Event()
    done: list[str] = []

    def slow(_: Any) -> None:
        entered.set()
        leave.wait(60)
        done.append("effect")

    acting = asyncio.ensure_future(world.runtime._engine.act(slow))
    await asyncio.to_thread(entered.wait, 60)
    acting.cancel()
    await asyncio.sleep(0)
    assert not acting.done()
    leave.set()
    with pytest.raises(asyncio.CancelledError):
        await acting
    assert done == ["effect"]


@pytest.mark.docker
async def test_close_leaves_no_thread(world: DockerWorld) -> None:
    """All threads of a runtime end with it."""
    before = set(threading.enumerate())
    runtime = world.another()
    await asyncio.gather(*(runtime.observe(new_workspace(), probe=True) for _ in range(10)))
    assert set(threading.enumerate()) - before
    await runtime.close()
    assert not {thread for thread in set(threading.enumerate()) - before if thread.name.startswith("docker")}


@pytest.mark.parametrize(
    ("status", "text", "expected"),
    [
        (404, "No such container: ws-1", NotThere),
        (404, "No such image: x:1", NoImage),
        (409, "Conflict. The container name is already in use", Conflict),
        (400, "invalid mount config", ActionFailed),
        (500, "driver failed programming external connectivity", ActionFailed),
        (503, "starting", Unreachable),
    ],
)
def test_what_the_engine_answers(status: int, text: str, expected: type[Exception]) -> None:
    """Each answer has its error, with the engine's own words in it."""
    failure = translate(_api_error(status, text), "unix:///d.sock")
    assert type(failure) is expected
    assert text in str(failure)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ReadTimeout(), "in time"),
        (TimeoutError(), "in time"),
        (RequestsConnectionError(ConnectionResetError(104, "Connection reset by peer")), "reset by peer"),
        (RequestsConnectionError("", PermissionError(13, "Permission denied")), "permission denied"),
        (ConnectionRefusedError(111, "Connection refused"), "is it running"),
    ],
)
def test_an_engine_that_does_not_answer(error: Exception, words: str) -> None:
    """All of it is Unreachable, in words that help."""
    failure = translate(error, "unix:///d.sock")
    assert type(failure) is Unreachable
    assert words in str(failure)
    assert "unix:///d.sock" in str(failure)


def test_a_mistake_of_ours() -> None:
    """What docker-py refuses before it asks the engine is no outage."""
    assert type(translate(DockerException("bad argument"), "unix:///d.sock")) is ActionFailed


def test_installation_must_be_a_plain_word() -> None:
    """It becomes part of a label, a network's name and a rule's comment."""
    with pytest.raises(ValueError, match="installation 'a b'"):
        DockerConfig("a b")


def _api_error(status: int, text: str) -> APIError:
    from docker.errors import ImageNotFound, NotFound

    response = Response()
    response.status_code = status
    kind = APIError if status != 404 else ImageNotFound if "image" in text else NotFound
    return kind("error", response=response, explanation=text)
