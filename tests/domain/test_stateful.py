"""A life of a workspace, in any order: users, reconciles, attempts, crashes, zombies, accidents, outages."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from domain.errors import MAX_RETRIES, WorkspaceError, is_terminal
from domain.model import DesiredState, ErrorReason, Operation, OperationId, Phase
from domain.observation import ContainerState, Observation
from domain.plan import Action
from tests.domain import world as w
from tests.domain.rows import violated_checks
from tests.domain.world import World


class Life(RuleBasedStateMachine):
    """The world's own checks fail it: a home that is empty, partial or older than the latest one, without DataLost
    having been said; a row that PostgreSQL would refuse."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.looked: tuple[World, Observation] | None = None
        self.claimed: list[OperationId] = []

    @property
    def runs(self) -> bool:
        return self.world.row.operation is not Operation.NONE

    @rule(desired=st.sampled_from(DesiredState))
    def wish(self, desired: DesiredState) -> None:
        # Deletion ends the life: it comes late in it.
        if w.may_wish(self.world, desired) and (desired is not DesiredState.DELETED or self.world.claims > 12):
            self.world = w.wish(self.world, desired)

    @precondition(lambda self: self.world.row.phase is Phase.ERROR)
    @rule()
    def recover(self) -> None:
        self.world = w.recover(self.world)

    @precondition(lambda self: w.can_work(self.world))
    @rule()
    def work(self) -> None:
        self.world = w.work(self.world)

    @rule(docker=st.booleans(), store=st.booleans())
    def reconcile(self, docker: bool, store: bool) -> None:
        self._reconcile(self.world, w.observe(self.world, docker=docker, store=store))

    @rule()
    def settle(self) -> None:
        """Nothing goes wrong for a while."""
        for _ in range(4):
            action = self._reconcile(self.world, w.observe(self.world))
            if action not in w.RUN:
                return
            self.world = w.begin(self.world)
            while self.world.attempt is not None:
                self._advance()

    @rule(docker=st.booleans())
    def look(self, docker: bool) -> None:
        """A reconcile loads and observes, and takes its time."""
        self.looked = (self.world, w.observe(self.world, docker=docker))

    @precondition(lambda self: self.looked is not None)
    @rule()
    def save_what_was_seen(self) -> None:
        assert self.looked is not None
        self._reconcile(*self.looked)
        self.looked = None

    @precondition(lambda self: self.runs)
    @rule()
    def begin(self) -> None:
        """The first attempt, or the next one while the former still lives."""
        self.world = w.begin(self.world)

    @precondition(lambda self: self.world.attempt is not None and self.runs)
    @rule(effects=st.integers(1, 5))
    def advance(self, effects: int) -> None:
        for _ in range(effects):
            if self.world.attempt is not None:
                self._advance()

    @precondition(lambda self: self.world.attempt is not None)
    @rule()
    def die(self) -> None:
        self.world = replace(self.world, attempt=None)

    @precondition(lambda self: self.runs)
    @rule()
    def attempt_fails(self) -> None:
        self._failed(ErrorReason.ACTION_FAILED)

    @precondition(lambda self: self.runs)
    @rule()
    def operation_times_out(self) -> None:
        """Its attempt does not notice."""
        self.world = w.fail(self.world, ErrorReason.TIMEOUT)

    @rule(seconds=st.sampled_from([1, 200, 2000]))
    def time_passes(self, seconds: int) -> None:
        self.world = w.later(self.world, timedelta(seconds=seconds))

    @precondition(lambda self: self.world.zombies)
    @rule(index=st.integers(0, 9), effects=st.integers(1, 5))
    def zombie_acts(self, index: int, effects: int) -> None:
        for _ in range(effects):
            if self.world.zombies:
                self.world = w.advance_zombie(self.world, index % len(self.world.zombies))

    @precondition(lambda self: self.world.container is not ContainerState.ABSENT)
    @rule(left=st.sampled_from([ContainerState.ABSENT, ContainerState.STOPPED, ContainerState.READY]))
    def container_changes(self, left: ContainerState) -> None:
        """It vanishes, dies, or answers at last."""
        if left is not ContainerState.READY or self.world.container in w.RUNS:
            self.world = replace(self.world, container=left)

    @precondition(lambda self: self.world.volume is not None)
    @rule(container=st.booleans())
    def volume_vanishes(self, container: bool) -> None:
        left = self.world.container if container else ContainerState.ABSENT
        self.world = replace(self.world, volume=None, container=left)

    @precondition(lambda self: self.world.row.archive_key in self.world.archives)
    @rule(certain=st.integers(0, 3))
    def archive_vanishes(self, certain: int) -> None:
        if certain == 0:  # no way back from it: seldom
            kept = {key: v for key, v in self.world.archives.items() if key != self.world.row.archive_key}
            self.world = replace(self.world, archives=kept)

    @invariant()
    def one_operation_at_most(self) -> None:
        """What is in flight is the last one that was claimed; every claim had an op_id of its own."""
        ws = self.world.row
        assert (ws.operation is Operation.NONE) == (ws.op_id is None)
        assert len(set(self.claimed)) == len(self.claimed) == self.world.claims
        assert ws.op_id is None or ws.op_id == self.claimed[-1]
        assert self.world.attempt is None or self.world.attempt.op_id == ws.op_id

    @invariant()
    def the_row_is_sound(self) -> None:
        assert violated_checks(self.world.row) == []
        assert self.world.row.phase is not Phase.ERROR or self.world.row.operation is Operation.NONE

    def _reconcile(self, looked: World, seen: Observation) -> Action:
        before = self.world.row
        self.world, decision = w.reconcile(self.world, seen, looked)
        after = self.world.row
        if after.op_id is not None and after.op_id != before.op_id:
            assert before.op_id is None or decision.completed is before.operation, "two operations at once"
            self.claimed.append(after.op_id)
        if before.op_id is not None and after.op_id != before.op_id and decision.completed is not Operation.NONE:
            # What was decided is not believed: the world it was decided on shows it.
            assert is_over(looked), f"{before.operation} was ended while it was under way"
        return decision.action

    def _advance(self) -> None:
        try:
            self.world = w.advance(self.world)
        except WorkspaceError as error:
            self._failed(error.reason)

    def _failed(self, reason: ErrorReason) -> None:
        """A failed attempt is over and counts; a terminal reason, or the third, ends the operation."""
        ws = self.world.row
        counted = replace(ws, error_count=ws.error_count + 1)
        self.world = replace(self.world, row=counted, attempt=None)
        if is_terminal(reason, counted.error_count, MAX_RETRIES):
            self.world = w.fail(self.world, reason)


def is_over(world: World) -> bool:
    """The effect of the operation in flight is there, all of it (the table of SPEC 4)."""
    ws, volume, stopped = world.row, world.volume, world.container is ContainerState.ABSENT
    own = ws.archive_key is not None and ws.archive_key in world.archives and ws.archive_op_id is not None
    match ws.operation:
        case Operation.PROVISIONING:
            return volume is not None
        case Operation.STARTING:
            return volume is not None and world.container is ContainerState.READY
        case Operation.STOPPING:
            return stopped
        case Operation.ARCHIVING:
            return volume is None and own
        case Operation.CREATE_EMPTY_ARCHIVE:
            return own
        case Operation.RESTORING:
            return stopped and volume is not None and volume.whole
        case Operation.DELETING:
            return volume is None and stopped
        case Operation.NONE:
            raise AssertionError("no operation is in flight")


def live(lives: int, steps: int) -> None:
    run_state_machine_as_test(
        Life,
        settings=settings(
            max_examples=lives,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_one_operation_at_a_time_and_no_home_replaced() -> None:
    """PROMISE 4: at most one operation in flight, ERROR never with one, and never a home replaced by an empty,
    partial or older one without DataLost having been said first (3,000 steps; the full count below)."""
    live(lives=60, steps=50)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_one_operation_at_a_time_and_no_home_replaced_in_full() -> None:
    """PROMISE 4: 50,000 steps of the same."""
    live(lives=500, steps=100)
