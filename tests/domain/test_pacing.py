"""A container that keeps ending is started again at a pace; one that ends now and then, at once."""

from dataclasses import replace
from datetime import timedelta

import pytest

from domain.apply import apply
from domain.judge import judge
from domain.knowledge import remembered
from domain.model import ConditionName, DesiredState, Operation, OperationId, Phase
from domain.observation import ContainerState, Presence
from domain.pacing import AT_ONCE, HELD, LONGEST, MOST, Ended, Pause, is_paused, pause_before_start
from domain.plan import START, Action, Decision, decide
from tests.domain.rows import NOW, formerly, row, seen, violated_checks

SECOND = timedelta(seconds=1)


def starts(number: int, *, apart: timedelta = SECOND, last: timedelta = timedelta(0)) -> list[Ended]:
    """Successful ones, latest first; the last one ended `last` ago."""
    return [Ended(True, NOW - last - apart * each - SECOND / 10, NOW - last - apart * each) for each in range(number)]


def waits(number: int) -> timedelta:
    """After so many starts in a row, the last of them right now."""
    pause = pause_before_start(starts(number), NOW)
    return pause.until - NOW if pause else timedelta(0)


def test_the_first_two_restarts_are_at_once() -> None:
    """The start that was asked for, and two restarts: what ends once or twice waits for nothing."""
    assert [waits(number) for number in range(AT_ONCE + 1)] == [timedelta(0)] * 3


def test_from_the_third_restart_on_the_pause_doubles() -> None:
    """Up to ten minutes, where it stays; what is counted no further makes no difference to it."""
    assert [waits(number) / SECOND for number in range(3, MOST)] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    assert waits(MOST) == waits(MOST + 5) == LONGEST


def test_the_pause_counts_from_the_last_start() -> None:
    """What is left of it is waited for; a start that held for longer has waited already."""
    five = starts(5, last=3 * SECOND)
    assert pause_before_start(five, NOW) == Pause(5, NOW + SECOND)
    assert pause_before_start(five, NOW + SECOND) is None


def test_those_that_end_at_once_stay_in_a_row_at_any_pause() -> None:
    """With the longest pause between them, too."""
    pause = pause_before_start(starts(8, apart=LONGEST + 30 * SECOND), NOW)
    assert pause is not None
    assert pause.starts == 8


def test_a_start_that_held_begins_a_new_row() -> None:
    """However often its container ended long ago; and also when it is the last one."""
    before = starts(MOST, last=HELD + 5 * SECOND)
    assert pause_before_start(before, NOW) is None
    assert pause_before_start([*starts(2), *before], NOW) is None
    assert pause_before_start([*starts(3), *before], NOW) == Pause(3, NOW + SECOND)


@pytest.mark.parametrize("place", range(3))
def test_another_operation_breaks_the_row(place: int) -> None:
    """A STOPPING, or a start that failed: somebody changed something since."""
    log = starts(MOST)
    log[place] = replace(log[place], started=False)
    assert pause_before_start(log, NOW) is None


def test_nothing_was_done_yet() -> None:
    """Its first start."""
    assert pause_before_start([], NOW) is None


def test_a_clock_that_was_set_back_holds_nothing_up() -> None:
    """The last start seems to be an hour away: it waits for its pause and no longer."""
    pause = pause_before_start(starts(4, last=timedelta(hours=-1)), NOW)
    assert pause == Pause(4, NOW + 2 * SECOND)


@pytest.mark.parametrize("container", [ContainerState.STOPPED, ContainerState.ABSENT])
def test_while_it_waits_the_row_says_standby_without_an_operation(container: ContainerState) -> None:
    """And until when. The next look finds the same, and goes on with the start when the pause is over."""
    ws = row(phase=Phase.RUNNING, conditions=formerly(volume=True, container=True))
    found = seen(Presence.PRESENT, container)
    judgement = judge(ws, found, NOW)
    assert decide(ws, judgement, found, NOW) == START
    paused = Decision(Action.PAUSE, pause=Pause(5, NOW + 3 * SECOND))
    saved = apply(ws, judgement, paused, found, NOW, OperationId("unused"))
    assert not violated_checks(saved)
    assert (saved.phase, saved.operation, saved.op_id) == (Phase.STANDBY, Operation.NONE, None)
    text = saved.conditions[ConditionName.CONTAINER_READY].message
    assert text == "the container ended 5 times in a row, and is started again at 2026-01-02 03:04:08 UTC"
    assert is_paused(saved)
    again = judge(saved, found, NOW + SECOND)
    assert decide(saved, again, found, NOW + SECOND) == START
    assert apply(saved, again, paused, found, NOW, OperationId("unused")).conditions == saved.conditions
    claimed = apply(saved, again, START, found, NOW, OperationId("next"))
    assert claimed.operation is Operation.STARTING
    assert not is_paused(claimed)


def test_who_goes_by_the_row_removes_what_may_be_left() -> None:
    """A worker elsewhere, when it is wanted STANDBY meanwhile: the row does not tell whether there is a container."""
    ws = row(phase=Phase.RUNNING, conditions=formerly(volume=True, container=True))
    found = seen(Presence.PRESENT, ContainerState.STOPPED)
    paused = Decision(Action.PAUSE, pause=Pause(3, NOW + SECOND))
    saved = apply(ws, judge(ws, found, NOW), paused, found, NOW, OperationId("unused"))
    wanted = replace(saved, desired_state=DesiredState.STANDBY)
    known = replace(found, resources=remembered(wanted))
    decision = decide(wanted, judge(wanted, known, NOW), known, NOW)
    assert decision == Decision(Action.CLAIM, Operation.STOPPING)
