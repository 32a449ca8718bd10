"""The checker itself: it must see what is lost, and not cry where an answer was lost."""

import itertools

import pytest

from domain.model import WorkspaceId
from tests.harness.history import Command, History, Outcome, lost

ONE = WorkspaceId("one")
DONE, REFUSED, UNKNOWN = Outcome.DONE, Outcome.REFUSED, Outcome.UNKNOWN


def command(value: str, sent: float, answered: float, outcome: Outcome = DONE) -> Command:
    return Command(ONE, "memo", value, sent, float("inf") if outcome is UNKNOWN else answered, outcome)


@pytest.mark.parametrize(
    ("commands", "standing"),
    [
        ([command("a", 0, 1)], {"a"}),
        ([command("a", 0, 1), command("b", 2, 3)], {"b"}),
        ([command("a", 0, 1), command("b", 2, 3, REFUSED)], {"a"}),
        ([command("a", 0, 1), command("b", 2, 3, UNKNOWN)], {"a", "b"}),
        # What is unknown may happen late, even after what was sent later.
        ([command("a", 0, 1, UNKNOWN), command("b", 2, 3)], {"a", "b"}),
        # Side by side: either may have been the later one.
        ([command("a", 0, 3), command("b", 1, 2)], {"a", "b"}),
        ([command("a", 0, 3), command("b", 1, 2), command("c", 4, 5)], {"c"}),
    ],
)
def test_what_may_stand_at_the_end(commands: list[Command], standing: set[str]) -> None:
    for order in itertools.permutations(commands):
        history = History(list(order))
        assert history.may_stand(ONE, "memo") == standing
        for value in "abcd":
            assert (lost(history, {(ONE, "memo"): value}) == []) == (value in standing)


def test_an_acknowledged_change_that_is_gone_is_seen() -> None:
    assert lost(History([command("a", 0, 1)]), {})
    assert not lost(History([command("a", 0, 1, UNKNOWN)]), {})
    assert not lost(History([command("a", 0, 1, REFUSED)]), {})
    assert lost(History([command("a", 0, 1, REFUSED)]), {(ONE, "memo"): "a"})
