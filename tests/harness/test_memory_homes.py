"""MemoryHomes keeps the contract of Homes: what tests/transfer/test_homes.py asks of the engine's."""

from collections.abc import Iterator

import pytest

from adapters.memory import MemoryHomes, MemoryRuntime
from adapters.memory.runtime import EMPTY_HOME
from domain.errors import ActionFailed, DataLost, Unreachable, VolumeInUse
from domain.model import OperationId, WorkspaceId
from tests.harness.scenarios import files, home

ONE = WorkspaceId("one")
OP = OperationId("operation")


@pytest.fixture
async def runtime() -> MemoryRuntime:
    runtime = MemoryRuntime()
    await runtime.create_volume(ONE, OP)
    return runtime


async def nothing() -> None:
    """A fence that lets pass."""


async def read(homes: MemoryHomes) -> bytes:
    async with homes.read(ONE) as stream:
        return b"".join(stream)


async def write(homes: MemoryHomes, *tar: bytes) -> None:
    async with homes.write(ONE, OP) as sink:
        await sink.extract(iter(tar))


async def test_what_is_written_is_read(runtime: MemoryRuntime) -> None:
    homes = MemoryHomes(runtime)
    assert await read(homes) == EMPTY_HOME
    for _ in range(2):
        await write(homes, home()[:1000], home()[1000:])
        assert files(await read(homes)) == files(home())


async def test_a_write_that_breaks_off_leaves_a_part(runtime: MemoryRuntime) -> None:
    """So that whoever takes it for a home is found out."""

    def broken() -> Iterator[bytes]:
        yield home()[:1000]
        raise ConnectionResetError

    homes = MemoryHomes(runtime)
    with pytest.raises(ConnectionResetError):
        async with homes.write(ONE, OP) as sink:
            await sink.extract(broken())
    assert await read(homes) == home()[:1000]


async def test_a_missing_volume_is_lost_data() -> None:
    with pytest.raises(DataLost):
        await read(MemoryHomes(MemoryRuntime()))


async def test_renewing_and_removing_can_be_done_again(runtime: MemoryRuntime) -> None:
    homes = MemoryHomes(runtime)
    await write(homes, home())
    for _ in range(2):
        await homes.renew(ONE, OP, nothing)
        assert await read(homes) == EMPTY_HOME
    for _ in range(2):
        await homes.remove(ONE, nothing)
        assert ONE not in runtime.volumes


async def test_whoever_is_late_removes_and_writes_nothing(runtime: MemoryRuntime) -> None:
    homes = MemoryHomes(runtime)

    async def overtaken() -> None:
        raise InterruptedError

    async def replaced() -> None:
        await homes.renew(ONE, OP, nothing)
        await write(homes, home())

    async with homes.write(ONE, OP) as late:
        for fence, error in ((overtaken, InterruptedError), (replaced, ActionFailed)):
            with pytest.raises(error):
                await homes.remove(ONE, fence)
            with pytest.raises(error):
                await homes.renew(ONE, OP, fence)
        await late.extract([b"too late"])
    assert await read(homes) == home()


async def test_what_a_container_holds_is_not_removed(runtime: MemoryRuntime) -> None:
    homes = MemoryHomes(runtime)
    await homes.ensure_unused(ONE)
    await runtime.start(ONE, "image", OP)
    for removal in (homes.ensure_unused(ONE), homes.remove(ONE, nothing)):
        with pytest.raises(VolumeInUse, match="in use"):
            await removal
    assert ONE in runtime.volumes


async def test_an_engine_that_does_not_answer_is_unreachable(runtime: MemoryRuntime) -> None:
    runtime.unreachable = True
    homes = MemoryHomes(runtime)
    for call in (read(homes), write(homes, home()), homes.remove(ONE, nothing), homes.renew(ONE, OP, nothing)):
        with pytest.raises(Unreachable):
            await call
