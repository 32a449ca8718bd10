"""A small world for the rules to act on: one workspace, its container, its volume, its archives.

The home's content is a version number: 0 is the empty home, every change of it counts one up. `latest` is what the
home must hold; it falls only after the row said DataLost. A world is immutable and every event makes a new one, so
that a test can follow all the ways on from a state.

What the operations do is SPEC 5, cut into effects that each happen or don't: a crash may come between any two. An
attempt that was superseded can still act (a zombie). As with the real activities, its saves are fenced by operation
and attempt, and so is whatever it makes (a volume, a container, an archive). What it removes, it removes: late.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from domain.apply import apply
from domain.errors import ActionFailed, DataLost, WorkspaceError
from domain.judge import judge, needs_archive
from domain.model import (
    DesiredState,
    ErrorReason,
    HomeContext,
    Operation,
    OperationId,
    Phase,
    Workspace,
)
from domain.naming import archive_key
from domain.observation import ContainerState, Observation, Presence, Resources
from domain.plan import Action, Decision, decide
from tests.domain.rows import NOW, row, violated_checks

RUNS = frozenset({ContainerState.UNREADY, ContainerState.READY})


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at an operation, and how far it is. Its number is the fence: a later attempt supersedes it."""

    operation: Operation
    op_id: OperationId
    number: int
    done: int = 0
    archive_op_id: OperationId | None = None
    holds: int | None = None
    """What was in the volume when it acted first: what ARCHIVING read."""

    def key(self, ws: Workspace) -> str:
        """Of the archive that it makes."""
        assert self.archive_op_id is not None
        return archive_key(ws.id, self.archive_op_id)


@dataclass(frozen=True, slots=True)
class Volume:
    version: int
    made_by: tuple[OperationId, int]
    whole: bool = True
    """False while an archive is being extracted into it, or after some of it was removed."""


class Superseded(Exception):
    """A later attempt took over, or the operation is over: this one ends without a trace."""


@dataclass(frozen=True, slots=True)
class World:
    row: Workspace = field(default_factory=lambda: row(node=None))
    container: ContainerState = ContainerState.ABSENT
    mounted: tuple[OperationId, int] | None = None
    """Who made the volume that the container was started on."""
    volume: Volume | None = None
    archives: Mapping[str, int] = field(default_factory=dict)
    """The version that each archive holds."""
    attempt: Attempt | None = None
    number: int = 0
    """How many attempts the operation in flight has had."""
    zombies: tuple[Attempt, ...] = ()
    latest: int = 0
    loss_said: bool = False
    """The row said DataLost, and no home was judged since."""
    claims: int = 0
    now: datetime = NOW

    def fenced(self, attempt: Attempt) -> None:
        if self.row.op_id != attempt.op_id or self.number != attempt.number:
            raise Superseded


def observe(world: World, *, docker: bool = True, store: bool = True) -> Observation:
    """What a reconcile sees. `docker` and `store` say whether they answer."""
    ws = world.row
    if ws.node is None:
        resources = Resources()
    elif docker:
        resources = Resources(world.container, Presence.PRESENT if world.volume else Presence.ABSENT)
    else:
        resources = Resources(ContainerState.UNKNOWN, Presence.UNKNOWN)
    archive = Presence.UNKNOWN
    if ws.archive_key is not None and needs_archive(ws, resources) and store:
        archive = Presence.PRESENT if ws.archive_key in world.archives else Presence.ABSENT
    return Observation(resources, archive)


def reconcile(world: World, seen: Observation | None = None, looked: World | None = None) -> tuple[World, Decision]:
    """Observe, judge, decide, save. `looked` is the world as it was when the row was loaded and observed.

    Checks that the new row is one that PostgreSQL would take, and that the home it promises is the latest one.
    """
    looked = looked or world
    ws = looked.row
    seen = seen or observe(looked)
    judgement = judge(ws, seen, looked.now)
    decision = decide(ws, judgement, seen, looked.now)
    op_id = OperationId(f"op-{world.claims + 1}")
    saved = apply(ws, judgement, decision, seen, looked.now, op_id, "n1")
    if ws is not world.row:  # the save compares the whole row (adapters.postgres.workspaces)
        return world, Decision(Action.LOOK_AGAIN)
    assert not violated_checks(saved), (violated_checks(saved), saved)
    if saved.op_id != ws.op_id:
        assert saved.op_id in {None, op_id}, "an operation in flight is followed by none, or by the one just claimed"
        world = replace(_superseded(world), number=0, claims=world.claims + (saved.op_id is not None))
    return _judged(_saved(world, saved), looked, seen), decision


def fail(world: World, reason: ErrorReason) -> World:
    """The operation failed for good: what the one atomic statement of SPEC 6 writes. Its attempt may live on."""
    ws = world.row
    assert ws.operation is not Operation.NONE
    failed = replace(
        ws,
        phase=Phase.ERROR,
        phase_changed_at=world.now,
        operation=Operation.NONE,
        op_id=None,
        op_started_at=None,
        error_reason=reason,
        error_count=max(1, ws.error_count),
    )
    assert not violated_checks(failed), (violated_checks(failed), failed)
    return _saved(_superseded(world), failed)


def begin(world: World) -> World:
    """A new attempt at the operation in flight; the former one, if it is still alive, is a zombie now."""
    ws = world.row
    assert ws.op_id is not None
    world = _superseded(world)
    number = world.number + 1
    return replace(world, number=number, attempt=Attempt(ws.operation, ws.op_id, number, 0, ws.archive_op_id))


def advance(world: World) -> World:
    """The next effect of the attempt. Raises what the actuator raises; after the last one the attempt is over."""
    assert world.attempt is not None
    try:
        world, going = _act(world, world.attempt)
    except Superseded:
        return replace(world, attempt=None)
    return replace(world, attempt=going)


def advance_zombie(world: World, index: int) -> World:
    """The next effect of an attempt that should be dead. What it raises, nobody hears."""
    others = world.zombies[:index] + world.zombies[index + 1 :]
    try:
        world, going = _act(world, world.zombies[index])
    except (Superseded, WorkspaceError):
        return replace(world, zombies=others)
    return replace(world, zombies=(*others, going) if going else others)


def perform(world: World) -> World:
    """A perfect actuator: one attempt from its first effect to its last."""
    world = begin(world)
    while world.attempt is not None:
        world = advance(world)
    return world


def wish(world: World, desired: DesiredState) -> World:
    """PATCH desired_state, DELETE for DELETED: allowed where `may_wish` says so."""
    assert may_wish(world, desired)
    world = later(world, timedelta(seconds=1))
    deleted_at = world.now if desired is DesiredState.DELETED else None
    return replace(world, row=replace(world.row, desired_state=desired, deleted_at=deleted_at))


def may_wish(world: World, desired: DesiredState) -> bool:
    ws = world.row
    if ws.operation is not Operation.NONE or ws.phase is Phase.DELETED:
        return False
    if desired is DesiredState.DELETED:
        return True
    return ws.deleted_at is None and ws.phase is not Phase.ERROR


def recover(world: World) -> World:
    assert world.row.phase is Phase.ERROR
    return replace(world, row=replace(world.row, error_reason=None, error_count=0))


def work(world: World) -> World:
    """Whoever is in the container changes the home."""
    assert can_work(world)
    assert world.volume is not None
    home = replace(world.volume, version=world.latest + 1)
    return replace(world, volume=home, latest=home.version)


def can_work(world: World) -> bool:
    return world.container in RUNS and world.volume is not None and world.volume.made_by == world.mounted


def later(world: World, by: timedelta) -> World:
    return replace(world, now=world.now + by)


def home_version(world: World, phase: Phase, key: str | None) -> int | None:
    """What the home holds if the phase is believed; None where the phase promises no home."""
    match phase:
        case Phase.STANDBY | Phase.RUNNING:
            return world.volume.version if world.volume and world.volume.whole else -1
        case Phase.ARCHIVED:
            return world.archives.get(key or "", -1)
        case Phase.PENDING:
            return 0
        case _:
            return None


def _act(world: World, attempt: Attempt) -> tuple[World, Attempt | None]:
    effects = EFFECTS[attempt.operation]
    if attempt.done == 0 and world.volume is not None:
        attempt = replace(attempt, holds=world.volume.version)
    world = effects[attempt.done](world, attempt)
    done = attempt.done + 1
    return world, replace(attempt, done=done) if done < len(effects) else None


def _saved(world: World, saved: Workspace) -> World:
    said = world.loss_said or saved.error_reason is ErrorReason.DATA_LOST
    return replace(world, row=saved, loss_said=said)


def _judged(world: World, looked: World, seen: Observation) -> World:
    """A home that is not the latest one is believed only after DataLost was said; then it is the one to keep."""
    version = home_version(looked, world.row.phase, world.row.archive_key)
    blind = seen.resources.volume is Presence.UNKNOWN or (version == -1 and seen.archive is Presence.UNKNOWN)
    if version is None or blind:
        return world
    assert version == looked.latest or world.loss_said, (
        f"{world.row.phase} with the home at {version} instead of {looked.latest}, and DataLost was never said"
    )
    return replace(world, latest=version if version != looked.latest else world.latest, loss_said=False)


def _superseded(world: World) -> World:
    if world.attempt is None:
        return world
    return replace(world, attempt=None, zombies=(*world.zombies, world.attempt))


def _make_volume(world: World, attempt: Attempt) -> World:
    world.fenced(attempt)
    if world.volume is not None:
        return world
    return replace(world, volume=Volume(0, (attempt.op_id, attempt.number)))


def _make_container(world: World, attempt: Attempt) -> World:
    world.fenced(attempt)
    if world.volume is None:
        raise DataLost("no volume to start on")
    assert world.volume.whole, "a container was started on a partial home"
    assert world.volume.version == world.latest, "a container was started on an empty or older home"
    if can_work(world):
        return world
    return replace(world, container=ContainerState.UNREADY, mounted=world.volume.made_by)


def _wait_for_port(world: World, _: Attempt) -> World:
    if world.container not in RUNS:
        raise ActionFailed("the container ended")
    return replace(world, container=ContainerState.READY)


def _stop(world: World, _: Attempt) -> World:
    return replace(world, container=ContainerState.STOPPED) if world.container in RUNS else world


def _remove_container(world: World, _: Attempt) -> World:
    return replace(world, container=ContainerState.ABSENT)


def _remove_volume(world: World, _: Attempt) -> World:
    if world.container is not ContainerState.ABSENT:
        raise ActionFailed("the volume is in use")
    return replace(world, volume=None)


def _remove_some(world: World, attempt: Attempt) -> World:
    """An engine that dies, or a disk that fails, leaves a part of the files."""
    world.fenced(attempt)
    if world.container is not ContainerState.ABSENT:
        raise ActionFailed("the volume is in use")
    return world if world.volume is None else replace(world, volume=replace(world.volume, whole=False))


def _read(world: World, attempt: Attempt) -> World:
    if attempt.holds is None and attempt.key(world.row) not in world.archives:
        raise DataLost("no volume to archive")
    return world


def _commit(world: World, attempt: Attempt) -> World:
    """Data, then `.meta`: the archive is there at once, and never replaced."""
    key = attempt.key(world.row)
    if key in world.archives:
        return world
    world.fenced(attempt)
    version = 0 if attempt.operation is Operation.CREATE_EMPTY_ARCHIVE else attempt.holds
    if version is None:
        raise DataLost("no volume to archive")
    return replace(world, archives={**world.archives, key: version})


def _save_key(world: World, attempt: Attempt) -> World:
    world.fenced(attempt)
    return replace(world, row=replace(world.row, archive_key=attempt.key(world.row)))


def _say_removal(world: World, attempt: Attempt) -> World:
    world.fenced(attempt)
    return replace(world, row=replace(world.row, home_ctx=replace(world.row.home_ctx, removing=world.row.archive_key)))


def _clear_container(world: World, attempt: Attempt) -> World:
    """What is left of a container would hold the volume that the restore replaces."""
    world.fenced(attempt)
    if world.row.home_ctx.restore_marker == world.row.archive_key:
        raise Superseded  # an earlier attempt did it all: a fresh volume would count as a home before it is one
    return _remove_container(world, attempt)


def _clear_place(world: World, attempt: Attempt) -> World:
    world.fenced(attempt)
    return _remove_volume(world, attempt)


def _make_place(world: World, attempt: Attempt) -> World:
    world.fenced(attempt)
    return replace(world, volume=Volume(-1, (attempt.op_id, attempt.number), whole=False))


def _extract(world: World, attempt: Attempt) -> World:
    key = world.row.archive_key
    if key is None or key not in world.archives:
        raise DataLost("the archive is gone")
    if world.volume is None or world.volume.made_by != (attempt.op_id, attempt.number):
        raise ActionFailed("the volume went away")
    return replace(world, volume=replace(world.volume, version=world.archives[key], whole=True))


def _save_marker(world: World, attempt: Attempt) -> World:
    world.fenced(attempt)
    return replace(world, row=replace(world.row, home_ctx=HomeContext(restore_marker=world.row.archive_key)))


Effect = Callable[[World, Attempt], World]

EFFECTS: Mapping[Operation, tuple[Effect, ...]] = {
    Operation.PROVISIONING: (_make_volume,),
    Operation.STARTING: (_make_container, _wait_for_port),
    Operation.STOPPING: (_stop, _remove_container),
    Operation.ARCHIVING: (_read, _commit, _save_key, _say_removal, _remove_some, _remove_volume),
    Operation.CREATE_EMPTY_ARCHIVE: (_commit, _save_key),
    Operation.RESTORING: (_clear_container, _clear_place, _make_place, _extract, _save_marker),
    Operation.DELETING: (_stop, _remove_container, _remove_volume),
}

RUN = frozenset({Action.CLAIM, Action.RESUME})
