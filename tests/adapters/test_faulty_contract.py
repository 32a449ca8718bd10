"""The contract of runtime and archive store when calls fail: done again, each ends where one call ends."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from adapters.runtime import Runtime
from adapters.s3.client import S3Config
from adapters.s3.store import open_store
from domain.errors import Unreachable
from domain.model import WorkspaceId
from domain.observation import ContainerState, Presence
from tests.adapters.docker_world import new_workspace
from tests.adapters.test_runtime_contract import OP, World, world
from tests.conftest import S3
from tests.faults.faulty import faulty

__all__ = ["world"]

Act = Callable[[Runtime, WorkspaceId, str], Awaitable[object]]


NOTHING = (ContainerState.ABSENT, Presence.ABSENT)
HOME = (ContainerState.ABSENT, Presence.PRESENT)
RUNS = (ContainerState.READY, Presence.PRESENT)

STEPS: dict[str, tuple[int, Act, tuple[ContainerState, Presence]]] = {
    # How much is there before, the call, and what is there after it.
    "create_volume": (0, lambda runtime, ws, _: runtime.create_volume(ws, OP), HOME),
    "start": (1, lambda runtime, ws, image: runtime.start(ws, image, OP), RUNS),
    "stop": (2, lambda runtime, ws, _: runtime.stop(ws), HOME),
    "remove_volume": (1, lambda runtime, ws, _: runtime.remove_volume(ws), NOTHING),
}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("method", STEPS)
async def test_a_call_of_the_runtime_that_failed_is_done_again(world: World, method: str, after: bool) -> None:
    """Nothing happened, or only the answer was lost: whoever calls can't tell, and need not."""
    ws = new_workspace()
    before, act, wanted = STEPS[method]
    for name in list(STEPS)[:before]:
        await STEPS[name][1](world.runtime, ws, world.image)
    runtime, faults = faulty(cast("Runtime", world.runtime))
    faults.fail(method, Unreachable("made to fail"), after=after)
    with pytest.raises(Unreachable):
        await act(runtime, ws, world.image)
    for _ in range(2):
        await act(runtime, ws, world.image)
        seen = await runtime.observe(ws, probe=True)
        assert (seen.container, seen.volume) == wanted, method
    assert faults.calls.count(method) == 3


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("method", ["upload", "replace", "end_uploads", "delete"])
async def test_a_call_of_the_store_that_failed_is_done_again(s3: S3, method: str, after: bool) -> None:
    """The same for what is stored: one archive, whole, and no upload left open."""

    async def parts() -> Any:
        yield b"the whole archive"

    async def fence() -> None:
        pass

    async with open_store(S3Config(s3.endpoint, s3.access_key, s3.bucket, s3.secret_key)) as store:
        archives, faults = faulty(store)
        acts: dict[str, Callable[[], Awaitable[object]]] = {
            "upload": lambda: archives.upload("one/two", parts(), fence),
            "replace": lambda: archives.replace("one/two.meta", b"meta", None),
            "end_uploads": lambda: archives.end_uploads("one/two", fence),
            "delete": lambda: archives.delete(["gone"]),
        }
        await store.write("gone", b"soon")
        faults.fail(method, Unreachable("made to fail"), after=after)
        with pytest.raises(Unreachable):
            await acts[method]()
        for _ in range(2):
            for act in acts.values():
                await act()
        stored = {found.key: await store.read(found.key) async for found in store.list_objects()}
        assert stored == {"one/two": b"the whole archive", "one/two.meta": b"meta"}
        assert not [upload async for upload in store.list_uploads()]
