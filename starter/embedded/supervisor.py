"""Starts children, keeps them running, stops them all."""

import asyncio
import itertools
import time
from collections.abc import Iterable
from pathlib import Path

import structlog

from starter.embedded.child import Child, Folders, Process, trim_log
from starter.embedded.errors import EmbeddedError
from starter.embedded.progress import NoProgress, Progress
from starter.embedded.record import end_leftovers

log = structlog.get_logger()

FIRST_DELAY, LONGEST_DELAY = 0.2, 5.0
STEADY_SECONDS = 10.0
TRIES_AT_START = 5
# For all of a stop, killing and cleaning up included: the rest of ten is for this process's own end.
STOP_SECONDS = 9.0
READY_PAUSE = 0.03


class Supervisor:
    """One per data directory, whose lock the caller holds. To be used from one event loop, in one thread:
    the kernel ties a child's life to the *thread* that started it.
    """

    def __init__(self, data: Path, progress: Progress | None = None, *, stop_within: float = STOP_SECONDS) -> None:
        self.folders = Folders(data)
        self._stop_within = stop_within
        self._progress = progress or NoProgress()
        self._keepers: dict[str, _Keeper] = {}
        self._logs: asyncio.Task[None] | None = None
        self._stopped = False
        end_leftovers(self.folders.run)

    async def start(self, *children: Child) -> None:
        """Start them side by side, each after those it names, and return when all are ready."""
        if self._stopped:
            raise EmbeddedError("The embedded services are being stopped.")
        if self._logs is None:
            self._logs = asyncio.create_task(self._trim_logs())
        started = [_Keeper(child, self.folders, self._progress, self._keepers) for child in children]
        for keeper in started:
            self._keepers[keeper.child.name] = keeper
        for keeper in started:
            keeper.begin()
        waits = [asyncio.ensure_future(keeper.first_ready()) for keeper in started]
        try:
            await asyncio.gather(*waits)
        finally:
            for wait in waits:
                wait.cancel()

    async def stop(self) -> None:
        """Stop all, dependents first, in `stop_within` seconds; a cancellation meanwhile is obeyed afterwards."""
        self._stopped = True
        stopping = asyncio.ensure_future(self._stop(self._keepers.values()))
        cancelled = False
        while not stopping.done():
            try:
                await asyncio.shield(stopping)
            except asyncio.CancelledError:
                cancelled = True
        stopping.result()
        if cancelled:
            raise asyncio.CancelledError

    def __contains__(self, name: str) -> bool:
        return name in self._keepers

    def pid(self, name: str) -> int | None:
        """The process id of a child that runs."""
        process = self._keepers[name].process
        return process.pid if process and process.exit_code is None else None

    async def ready(self, name: str) -> None:
        """Wait until the child is ready (again)."""
        await self._keepers[name].ready.wait()

    async def pause(self, name: str) -> None:
        """Stop one child and leave it stopped, as if its service were down."""
        await self._keepers[name].stop(time.monotonic() + self._stop_within)

    async def resume(self, name: str) -> None:
        keeper = self._keepers[name]
        keeper.begin()
        await keeper.first_ready()

    async def _stop(self, keepers: Iterable["_Keeper"]) -> None:
        if self._logs:
            self._logs.cancel()
        began = time.monotonic()
        children = [keeper.child for keeper in self._keepers.values()]
        shares = stop_shares(children)
        stops: dict[str, asyncio.Task[None]] = {}

        async def in_turn(keeper: _Keeper) -> None:
            keeper.give_up()
            name = keeper.child.name
            await asyncio.gather(*(stops[other] for other in _dependents(name, children)))
            due = began + self._stop_within * shares[name]
            await keeper.stop(due)
            await keeper.child.cleanup(max(due - time.monotonic(), 0.0))

        for keeper in keepers:
            stops[keeper.child.name] = asyncio.create_task(in_turn(keeper))
        results = await asyncio.gather(*stops.values(), return_exceptions=True)
        self._keepers.clear()
        for error in results:
            if isinstance(error, BaseException):
                log.error("embedded_stop_failed", error=repr(error))

    async def _trim_logs(self) -> None:
        while True:
            await asyncio.sleep(60)
            for name in self._keepers:
                trim_log(self.folders.log(name))


def stop_shares(children: Iterable[Child]) -> dict[str, float]:
    """The part of the time for a stop after which each must be gone.

    Those that nobody depends on stop first, then those that only these depend on, and so on: each of these ranks has
    an equal part, and what the ranks before it did not use. However long the first take, the last have theirs.
    """
    children = list(children)

    def rank(name: str) -> int:
        return 1 + max(map(rank, _dependents(name, children)), default=0)

    ranks = {child.name: rank(child.name) for child in children}
    return {name: number / max(ranks.values()) for name, number in ranks.items()}


def _dependents(name: str, children: Iterable[Child]) -> list[str]:
    return [child.name for child in children if name in child.after]


class _Keeper:
    """Keeps one child running: starts it, and starts it again when it dies, always with the same arguments."""

    def __init__(self, child: Child, folders: Folders, progress: Progress, others: dict[str, "_Keeper"]) -> None:
        self.child = child
        self.process: Process | None = None
        self.ready = asyncio.Event()
        self._folders = folders
        self._progress = progress
        self._others = others
        self._task: asyncio.Task[None] | None = None
        self._was_ready = False

    def begin(self) -> None:
        self._was_ready = False
        self._task = asyncio.create_task(self._keep(), name=f"keep {self.child.name}")

    async def first_ready(self) -> None:
        """Return when ready; raise what keeps it from ever being so."""
        if self._task is None:
            return
        ready = asyncio.ensure_future(self.ready.wait())
        try:
            await asyncio.wait({ready, self._task}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
        if self._task.done():
            self._task.result()

    def give_up(self) -> None:
        """No further restart, but the process may go on for now."""
        if self._task:
            self._task.cancel()

    async def stop(self, due: float) -> None:
        """As patiently as the child deserves, but so that what must be forced is done when it is due."""
        self.give_up()
        if self._task:
            await asyncio.gather(self._task, return_exceptions=True)
        self.ready.clear()
        if self.process:
            patience = min(self.child.stop_patience, due - self.child.force_seconds - time.monotonic())
            await self.process.stop(max(patience, 0.0))

    async def _keep(self) -> None:
        for name in self.child.after:
            # What isn't here is external: nothing to wait for.
            if name in self._others:
                await self._others[name].ready.wait()
        began = time.monotonic()
        deaths = 0
        while True:
            started = time.monotonic()
            trouble = await self._run(began)
            if self._was_ready and time.monotonic() - started > STEADY_SECONDS:
                deaths = 0
            deaths += 1
            log.warning("embedded_child_down", child=self.child.name, reason=trouble)
            out_of_time = time.monotonic() - began > self.child.ready_within
            if not self._was_ready and (deaths >= TRIES_AT_START or out_of_time):
                raise EmbeddedError(
                    f"{self.child.name} does not start: {trouble} (log: {self._folders.log(self.child.name)})"
                )
            await asyncio.sleep(min(FIRST_DELAY * 2 ** (deaths - 1), LONGEST_DELAY))

    async def _run(self, began: float) -> str:
        """One life of the child, from its start to its end; returns why it ended."""
        try:
            await self.child.prepare()
            self._progress.step(self.child.name, "starting")
            self.process = Process(self.child, self._folders)
        except (EmbeddedError, OSError) as error:
            if self._was_ready:
                return str(error)
            if isinstance(error, EmbeddedError):
                raise
            raise EmbeddedError(f"{self.child.name} can't be prepared: {error}.") from error
        trouble = await self._until_ready(self.process)
        if trouble:
            await self.process.kill()
            return trouble
        if not self._was_ready:
            self._progress.done(self.child.name, time.monotonic() - began)
        log.info("embedded_child_ready", child=self.child.name, pid=self.process.pid)
        self._was_ready = True
        self.ready.set()
        await self.process.wait()
        self.ready.clear()
        return self.process.ending()

    async def _until_ready(self, process: Process) -> str | None:
        deadline = time.monotonic() + self.child.ready_within
        for _ in itertools.count():
            if process.has_ended():
                return process.ending()
            left = deadline - time.monotonic()
            try:
                async with asyncio.timeout(max(left, 0.1)):
                    await self.child.ready()
            except Exception as error:  # noqa: BLE001 whatever the service's client raises means "not yet"
                if left <= 0:
                    return f"not ready after {self.child.ready_within:.0f} s: {error!r}; {process.ending()}"
                await asyncio.sleep(READY_PAUSE)
            else:
                # Who answered was another, if this one is dead.
                return process.ending() if process.has_ended() else None
        raise AssertionError
