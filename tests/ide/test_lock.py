"""One build at a time."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from starter.embedded.errors import EmbeddedError
from starter.ide.lock import alone

HOLDER = """
import asyncio, pathlib, sys
from starter.ide.lock import alone
async def main():
    async with alone(pathlib.Path(sys.argv[1]), print):
        print("held", flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


async def test_second_waits(tmp_path: Path) -> None:
    """Who comes second is told to wait, and goes on when the first is through."""
    told: list[str] = []
    order: list[str] = []

    async def second() -> None:
        async with alone(tmp_path, told.append):
            order.append("second")

    async with alone(tmp_path, told.append):
        waiting = asyncio.create_task(second())
        async with asyncio.timeout(30):
            while not told:
                await asyncio.sleep(0.01)
        order.append("first")
    await asyncio.wait_for(waiting, 30)
    assert order == ["first", "second"]
    assert "waiting" in told[0]


async def test_killed_holder(tmp_path: Path) -> None:
    """A build that is killed -9 holds up nobody."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout
    try:
        assert holder.stdout.readline() == "held\n"
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    async with asyncio.timeout(30), alone(tmp_path, lambda _: None):
        pass


async def test_no_room(tmp_path: Path) -> None:
    """A cache that can't be written to is named in one line."""
    (tmp_path / "file").touch()
    with pytest.raises(EmbeddedError, match=r"Can't write to .*file/ide"):
        async with alone(tmp_path / "file" / "ide", lambda _: None):
            pass
