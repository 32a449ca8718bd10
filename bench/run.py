"""A run of the benchmarks: part after part, within a time, and what is found is kept at once."""

import asyncio
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from bench import archive, events, nodes, proxy, restarts, scale, smaller, tables, transitions
from bench.installation import installed, simulated
from bench.part import Part
from bench.report import Report
from bench.results import Results
from bench.row import figure, show
from bench.sizes import Sizes

Work = Callable[[Any, Part, Sizes], Awaitable[None]]

OUT_OF_TIME = "out of time"


class OutOfTime(Exception):
    """Nothing more is begun."""


@dataclass(frozen=True)
class World:
    """What some parts share; the parts in it, in their order."""

    opened: Callable[[Sizes], AbstractAsyncContextManager[Any]]
    parts: Mapping[str, Work]


@asynccontextmanager
async def _nothing(_: Sizes) -> AsyncIterator[None]:
    yield


WORLDS = (
    World(lambda _: installed(), MappingProxyType({"transitions": transitions.run, "archive": archive.run})),
    World(_nothing, MappingProxyType({"proxy": proxy.run})),
    # What takes longest comes last: where the time is over, the least is lost.
    World(simulated, MappingProxyType({"events": events.run, "tables": tables.run, "scale": scale.run})),
    World(simulated, MappingProxyType({"restarts": restarts.run})),
    World(simulated, MappingProxyType({"nodes": nodes.run})),
    World(simulated, MappingProxyType({"growth": smaller.run})),
)


@dataclass
class Run:
    sizes: Sizes
    results: Results
    report: Report | None = None
    seconds: float | None = None
    """For all of it; None: as long as it takes."""
    worlds: Sequence[World] = WORLDS
    ended: list[Part] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)

    async def parts(self, names: Sequence[str]) -> bool:
        """Whether all of them could be measured."""
        for world in self.worlds:
            chosen = {name: work for name, work in world.parts.items() if name in names}
            if chosen:
                await self._in(world, chosen)
        if len(self.ended) > 1:
            show([row for part in self.ended for row in part.rows])
        spent = ", ".join(f"{part.name} {part.seconds:.0f}" for part in self.ended)
        print(f"{time.monotonic() - self._began:.0f} s in all ({spent}); kept in {self.results.path}")
        return all(part.whole for part in self.ended)

    async def _in(self, world: World, parts: Mapping[str, Work]) -> None:
        """The others go on where one fails; where the world itself does, all that is left in it is not measured."""
        left = list(parts)
        try:
            self._require_time()
            async with world.opened(self.sizes) as opened:
                for name, work in parts.items():
                    self._require_time()
                    await self._run(name, opened, work)
                    left.remove(name)
        except OutOfTime:
            self._not_measured(left, OUT_OF_TIME)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told, and the next world can be measured
            traceback.print_exc()
            self._not_measured(left, _told(error))

    async def _run(self, name: str, opened: object, work: Work) -> None:
        print(f"— {name}", flush=True)
        part, began = Part.begun(name), time.monotonic()
        timeout = asyncio.timeout(None if self.seconds is None else self.seconds - (began - self._began))
        try:
            async with timeout:
                await work(opened, part, self.sizes)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told, and the next part can be measured
            if not timeout.expired():
                traceback.print_exc()
            part.failed(OUT_OF_TIME if timeout.expired() else _told(error))
        part.seconds = time.monotonic() - began
        _tell(part)
        self._keep(part)

    def _require_time(self) -> None:
        if self.seconds is not None and time.monotonic() - self._began >= self.seconds:
            raise OutOfTime

    def _not_measured(self, names: Sequence[str], why: str) -> None:
        for name in names:
            part = Part.begun(name)
            part.failed(why)
            self._keep(part)

    def _keep(self, part: Part) -> None:
        self.ended.append(part)
        self.results.keep(part)
        if self.report:
            self.report.keep(part)


def _tell(part: Part) -> None:
    if part.rows:
        show(part.rows)
    for what, curve in part.growth:
        points = ", ".join(f"{size:,}: {figure(value)}" for size, value in sorted(curve.points.items()))
        print(f"  {what}, {curve.unit}: {points}{' (superlinear)' if curve.superlinear else ''}")
    print(f"— {part.name}: {part.seconds:.0f} s", flush=True)


def _told(error: Exception) -> str:
    """In a line of a table."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
