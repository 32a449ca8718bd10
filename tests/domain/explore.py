"""Every state of the world that can be reached, up to names: op ids, and versions that differ only in number."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta

from domain.errors import WorkspaceError
from domain.model import ConditionName, DesiredState, ErrorReason, Operation, OperationId, Phase
from domain.observation import ContainerState
from tests.domain import world as w
from tests.domain.world import World

Events = Callable[[World], Iterator[tuple[str, World]]]
AGES = timedelta(hours=2)


def explore(events: Events, *, zombies: int = 0, limit: int = 100_000) -> dict[object, tuple[World, tuple[str, ...]]]:
    """All states by their fingerprint, each with the events that lead to it; of zombies, the last ones are kept."""
    start = World()
    found: dict[object, tuple[World, tuple[str, ...]]] = {fingerprint(start): (start, ())}
    queue = deque(found)
    while queue:
        state, path = found[queue.popleft()]
        for name, reached in _told(state, path, events):
            following = replace(reached, zombies=reached.zombies[len(reached.zombies) - zombies :])
            mark = fingerprint(following)
            if mark not in found:
                found[mark] = (following, (*path, name))
                queue.append(mark)
                assert len(found) <= limit, "more states than expected: the fingerprint tells too many apart"
    return found


def _told(state: World, path: tuple[str, ...], events: Events) -> Iterator[tuple[str, World]]:
    try:
        yield from events(state)
    except AssertionError as error:
        raise AssertionError(f"{error}\nafter {' → '.join(path)}") from error


def users(state: World) -> Iterator[tuple[str, World]]:
    for desired in DesiredState:
        failed = state.row.phase is Phase.ERROR
        if w.may_wish(state, desired) and (failed or state.row.desired_state is not desired):
            yield f"wish {desired}", w.wish(state, desired)
    if state.row.phase is Phase.ERROR and state.row.error_reason is not None:
        yield "recover", w.recover(state)
    if w.can_work(state) and not _is_fresh(state):
        yield "work", w.work(state)


def controller(state: World) -> Iterator[tuple[str, World]]:
    """A reconcile with everything, Docker, or the store unreachable; attempts that act, crash, fail, take too long."""
    for docker, store in ((True, True), (False, True), (True, False)):
        seen = w.observe(state, docker=docker, store=store)
        yield f"reconcile {seen.resources.volume} {seen.archive}", w.reconcile(state, seen)[0]
    if state.row.operation is Operation.NONE:
        return
    yield "too late", w.reconcile(w.later(state, AGES))[0]
    if state.attempt is None:
        yield "begin", w.begin(state)
        return
    yield "die", replace(state, attempt=None)
    yield "supersede", w.begin(state)
    yield "fail", w.fail(state, ErrorReason.ACTION_FAILED)
    try:
        yield "advance", w.advance(state)
    except WorkspaceError as error:
        yield f"advance: {error.reason}", w.fail(replace(state, attempt=None), error.reason)


def accidents(state: World) -> Iterator[tuple[str, World]]:
    if state.container in w.RUNS:
        yield "container dies", replace(state, container=ContainerState.STOPPED)
    if state.container is not ContainerState.ABSENT:
        yield "container vanishes", replace(state, container=ContainerState.ABSENT)
    if state.container is ContainerState.UNREADY:
        yield "container answers", replace(state, container=ContainerState.READY)
    if state.volume is not None:
        yield "volume vanishes", replace(state, volume=None)


def archive_vanishes(state: World) -> Iterator[tuple[str, World]]:
    key = state.row.archive_key
    if key in state.archives:
        yield "archive vanishes", replace(state, archives={k: v for k, v in state.archives.items() if k != key})


def late(state: World) -> Iterator[tuple[str, World]]:
    for index, zombie in enumerate(state.zombies):
        yield f"zombie {zombie.operation}", w.advance_zombie(state, index)


def fingerprint(state: World) -> object:
    ws = state.row
    names: dict[OperationId | None, int] = {None: 0}
    for op_id in (ws.op_id, ws.archive_op_id, _op_of(ws.archive_key), _op_of(ws.home_ctx.restoring)):
        names.setdefault(op_id, len(names))
    kept = {names[_op_of(key)]: version for key, version in state.archives.items() if _op_of(key) in names}
    volume = state.volume
    there = [volume.version] if volume else []
    there += [a.holds for a in (*state.zombies, state.attempt) if a and a.holds is not None]
    versions = sorted({0, state.latest, *kept.values(), *there})
    rank = {version: index for index, version in enumerate(versions)}
    archive = ws.conditions.get(ConditionName.ARCHIVE_READY)
    return (
        ws.phase,
        ws.operation,
        ws.desired_state,
        ws.error_reason,
        ws.deleted_at is not None and ws.deleted_at <= ws.phase_changed_at,
        ws.node,
        tuple(names.get(op) for op in (ws.op_id, ws.archive_op_id, _op_of(ws.archive_key))),
        (
            ws.home_ctx.restoring is not None,
            ws.home_ctx.restore_marker == ws.archive_key,
            ws.home_ctx.removing is not None,
        ),
        tuple(ws.condition(name) for name in ConditionName),
        archive is not None and archive.message == ws.archive_key,
        state.container,
        volume
        and (rank[volume.version], volume.whole, names.get(volume.made_by[0]), volume.made_by[1] == state.number),
        w.can_work(replace(state, container=ContainerState.READY)),
        tuple(sorted((name, rank[version]) for name, version in kept.items())),
        state.attempt and (state.attempt.done, _read(state.attempt, rank)),
        tuple((z.operation, z.done, names.get(z.op_id), _read(z, rank)) for z in state.zombies),
        rank[state.latest],
        state.loss_said,
    )


def _is_fresh(state: World) -> bool:
    """One change more makes no difference where no archive, nor the empty home, holds the version at hand."""
    return state.latest > 0 and state.latest not in state.archives.values()


def _read(attempt: w.Attempt, rank: dict[int, int]) -> int | None:
    waits = attempt.operation is Operation.ARCHIVING and attempt.done == 1 and attempt.holds is not None
    return rank[attempt.holds] if waits and attempt.holds is not None else None


def _op_of(key: str | None) -> OperationId | None:
    return OperationId(key.split("/")[1]) if key else None
