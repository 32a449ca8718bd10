"""`python -m tests.processes.crash_worker`: the real worker, except that it kills itself at chosen calls.

Every call that an activity makes to PostgreSQL, Redis, the engine or the store is a point: `STARTING runtime.start#1`,
before its effect or after it. CRASH_CELLS names one for each workspace (see `Cell`), or for a run of GC or TTL by the
id of its workflow, and a cell strikes once: right before, its mark is made in the folder CRASH_MARKS, so that the
worker that is started next goes on. Every point that is reached is logged. With CRASH_ELECT=0 nothing is observed, and
nobody is woken.
"""

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from types import MethodType
from typing import Any

import structlog
from temporalio import activity

from activities.bucket import Bucket
from activities.gc import GarbageCollector
from activities.operate import Operator
from activities.reconcile import Reconciler
from activities.transfer import Transfers
from activities.ttl import TtlRunner
from adapters.docker.runtime import DockerRuntime
from adapters.s3.store import S3ArchiveStore
from domain.model import Operation, WorkspaceId
from settings import load_settings
from starter.logs import configure_logs
from tests.faults.faulty import Faults, _Rule, faulty
from worker import Parts, actuators, open_parts, running
from workflows.messages import (
    COLLECT_GARBAGE,
    EXPIRE,
    FAIL,
    RECONCILE,
    ExpireInput,
    FailInput,
    GcInput,
    GcReport,
    OperateInput,
    ReconcileInput,
    Step,
    TtlReport,
)

log = structlog.get_logger()


@dataclass(frozen=True)
class Cell:
    activity: str
    call: str
    """`store.save#1`: of one run of this activity for the workspace, the first call of that name."""
    after: bool

    def json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(eq=False)
class Work:
    workspace: WorkspaceId
    activity: str
    calls: Counter[str] = field(default_factory=Counter)


_WORK: ContextVar[Work | None] = ContextVar("work", default=None)


@contextmanager
def working(workspace: WorkspaceId, name: str) -> Iterator[None]:
    token = _WORK.set(Work(workspace, name))
    try:
        yield
    finally:
        _WORK.reset(token)


@dataclass(frozen=True)
class Crashes:
    cells: dict[str, Cell]
    marks: Path

    def reached(self, name: str) -> tuple[bool, bool]:
        """Whether to die before, and after, this call."""
        work = _WORK.get()
        if work is None:
            return False, False
        work.calls[name] += 1
        call = f"{name}#{work.calls[name]}"
        log.info("reached", workspace=work.workspace, activity=work.activity, call=call)
        cell = self.cells.get(work.workspace)
        here = cell is not None and (cell.activity, cell.call) == (work.activity, call)
        if cell is None or not here or (self.marks / work.workspace).exists():
            return False, False
        return not cell.after, cell.after

    async def die(self) -> None:
        work = _WORK.get()
        assert work
        (self.marks / work.workspace).touch()
        os.kill(os.getpid(), signal.SIGKILL)

    async def point(self, name: str) -> None:
        if any(self.reached(f"point.{name}")):
            await self.die()


class _PartCrashes(Faults):
    def __init__(self, crashes: Crashes, part: str) -> None:
        super().__init__()
        self._crashes = crashes
        self._part = part

    def taken(self, method: str) -> _Rule | None:
        before, after = self._crashes.reached(f"{self._part}.{method}")
        if not before and not after:
            return None
        return _Rule(method, self._crashes.die if before else None, self._crashes.die if after else None, 0, 0)


class CrashingReconciler(Reconciler):
    @activity.defn(name=RECONCILE)
    async def reconcile(self, request: ReconcileInput) -> Step:
        with working(request.workspace_id, RECONCILE):
            return await super().reconcile(request)

    @activity.defn(name=FAIL)
    async def fail(self, request: FailInput) -> None:
        with working(request.workspace_id, FAIL):
            await super().fail(request)


class CrashingOperator(Operator):
    async def run(self, operation: Operation, request: OperateInput) -> Step:
        with working(request.workspace_id, operation):
            return await super().run(operation, request)


class CrashingCollector(GarbageCollector):
    @activity.defn(name=COLLECT_GARBAGE)
    async def collect(self, request: GcInput) -> GcReport:
        with working(_this_run(), COLLECT_GARBAGE):
            return await super().collect(request)


class CrashingTtlRunner(TtlRunner):
    @activity.defn(name=EXPIRE)
    async def tick(self, request: ExpireInput | None = None) -> TtlReport:
        with working(_this_run(), EXPIRE):
            return await super().tick(request)


def _this_run() -> WorkspaceId:
    """GC and TTL work for all workspaces: a run stands for the one."""
    return WorkspaceId(activity.info().workflow_id or "")


def crashing(parts: Parts, crashes: Crashes) -> Parts:
    def wrap(part: str, target: Any) -> Any:
        return faulty(target, _PartCrashes(crashes, part))[0]

    assert isinstance(parts.runtime, DockerRuntime)
    former = parts.operator.reconciler
    assert isinstance(former.archives, S3ArchiveStore)
    given = {one.name: getattr(former, one.name) for one in fields(former)}
    changed = {part: wrap(part, given[part]) for part in ("store", "runtime", "archives")}
    reconciler = CrashingReconciler(**{**given, **changed})
    transfers = Transfers(reconciler.store, reached=crashes.point)
    homes = wrap("homes", parts.runtime.homes())
    bucket = Bucket(wrap("archives", former.archives), parts.runtime.config.installation)
    acts = actuators(reconciler.runtime, homes, bucket, transfers)
    given = {one.name: getattr(parts.operator, one.name) for one in fields(parts.operator)}
    operator = CrashingOperator(**{**given, "reconciler": reconciler, "actuators": acts})
    return replace(parts, operator=operator, activities=tuple(_runner(one, wrap) for one in parts.activities))


def _runner(run: Callable[..., Any], wrap: Callable[[str, Any], Any]) -> Callable[..., Any]:
    """GC in small batches, so that it has several."""
    assert isinstance(run, MethodType)
    former = run.__self__
    assert isinstance(former, GarbageCollector | TtlRunner)
    given = {one.name: getattr(former, one.name) for one in fields(former)}
    if isinstance(former, TtlRunner):
        changed = {name: wrap(name, given[name]) for name in ("expiry", "activity_log")}
        return CrashingTtlRunner(**{**given, **changed}).tick
    changed = {name: wrap(name, given[name]) for name in ("garbage", "archives")}
    return CrashingCollector(**{**given, **changed, "batch": 3}).collect


async def main() -> None:
    settings = load_settings(os.environ)
    configure_logs(settings)
    cells = {workspace: Cell(**cell) for workspace, cell in json.loads(os.environ["CRASH_CELLS"]).items()}
    crashes = Crashes(cells, Path(os.environ["CRASH_MARKS"]))
    elect = os.environ.get("CRASH_ELECT", "1") == "1"
    async with open_parts(settings) as parts, running(crashing(parts, crashes), elect=elect):
        # What it does by itself when it starts comes before all that is looked at.
        await asyncio.gather(*parts.lookouts)
        log.info("worker_ready")
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
