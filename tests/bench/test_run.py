"""A run of the benchmarks: what is kept of it when parts of it fail, or the time is over."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bench.part import Part
from bench.results import ORDER, Results
from bench.row import Row
from bench.run import WORLDS, Run, World
from bench.sizes import TINY, Sizes


@asynccontextmanager
async def _nothing(_: Sizes) -> AsyncIterator[None]:
    yield


@asynccontextmanager
async def _broken(sizes: Sizes) -> AsyncIterator[None]:
    if sizes is TINY:
        raise RuntimeError("no engine")
    yield


async def _good(_: object, part: Part, __: Sizes) -> None:
    part.add(Row("good", [1.0]))


async def _crashing(_: object, part: Part, __: Sizes) -> None:
    part.add(Row("before", [1.0]))
    raise RuntimeError("a\nbad day")


async def _slow(_: object, part: Part, __: Sizes) -> None:
    part.add(Row("before", [1.0]))
    await asyncio.sleep(60)


def _run(path: Path, *worlds: World, seconds: float | None = None) -> Run:
    return Run(TINY, Results(path / "bench.json"), seconds=seconds, worlds=worlds)


async def test_a_part_that_crashes_keeps_what_it_found_and_the_others_go_on(tmp_path: Path) -> None:
    """But the run counts as incomplete, and says in the table what is missing and why."""
    run = _run(tmp_path, World(_nothing, {"archive": _crashing, "tables": _good}))
    assert await run.parts(["archive", "tables"]) is False
    kept = run.results.load()
    assert [(row.name, row.missing) for row in kept["archive"].rows] == [
        ("before", ""),
        ("archive: the rest of it", "RuntimeError: a bad day"),
    ]
    assert kept["tables"].whole


async def test_what_was_kept_is_there_before_the_run_ends(tmp_path: Path) -> None:
    """A run that is cut short loses only the part that it was at."""
    run = _run(tmp_path, World(_nothing, {"tables": _good, "scale": _slow}))
    running = asyncio.create_task(run.parts(["tables", "scale"]))
    while "tables" not in run.results.load():
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert list(run.results.load()) == ["tables"]


async def test_a_world_that_does_not_open_is_told_for_each_part_in_it(tmp_path: Path) -> None:
    """And the next world is measured."""
    run = _run(tmp_path, World(_broken, {"archive": _good, "transitions": _good}), World(_nothing, {"proxy": _good}))
    assert await run.parts(["archive", "transitions", "proxy"]) is False
    kept = run.results.load()
    assert {name for name, part in kept.items() if not part.whole} == {"archive", "transitions"}
    assert "no engine" in kept["archive"].rows[0].missing


async def test_when_the_time_is_over_nothing_more_is_measured(tmp_path: Path) -> None:
    """What took too long is cut off, what comes after it is not begun; both say so."""
    run = _run(tmp_path, World(_nothing, {"scale": _slow}), World(_broken, {"proxy": _slow}), seconds=0.2)
    assert await run.parts(["scale", "proxy"]) is False
    kept = run.results.load()
    assert [row.missing for row in kept["scale"].rows] == ["", "out of time"]
    assert [row.missing for row in kept["proxy"].rows] == ["out of time"]


async def test_only_what_was_asked_for_is_run_and_worlds_without_it_are_not_opened(tmp_path: Path) -> None:
    """An engine is not started for nothing."""
    run = _run(tmp_path, World(_broken, {"archive": _good}), World(_nothing, {"tables": _good, "scale": _crashing}))
    assert await run.parts(["tables"]) is True
    assert [part.name for part in run.ended] == ["tables"]


def test_every_part_has_its_place_in_the_table() -> None:
    """One that is not in the order would be lost from it."""
    assert sorted(name for world in WORLDS for name in world.parts) == sorted(ORDER)
