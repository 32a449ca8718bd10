"""How many operations of a kind a worker runs at once.

Whoever finds no place free is sent away and comes again: waiting inside, hundreds of archives that expire together
would take every slot of the worker, and a person who starts a workspace would wait for all of them.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic

from domain.model import Operation, OperationId

_SHORTEST, _LONGEST = 0.5, 60.0
_RETURNS_PER_SECOND = 8
"""Of all who wait together: a place is not free for long, and asking for one costs little."""


class NoPlace(Exception):
    """All places are taken: come again after `delay` seconds. No error of the workspace."""

    def __init__(self, delay: float) -> None:
        super().__init__("other transfers have all places: it waits for one")
        self.delay = delay


@dataclass(slots=True)
class Places:
    count: int
    clock: Callable[[], float] = monotonic
    _taken: int = field(default=0, init=False)
    _sent_away: dict[OperationId, float] = field(default_factory=dict, init=False)

    @contextmanager
    def taken(self, op_id: OperationId) -> Iterator[None]:
        if self._taken >= self.count:
            raise NoPlace(self._delay(op_id))
        self._sent_away.pop(op_id, None)
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1

    def _delay(self, op_id: OperationId) -> float:
        now = self.clock()
        # Who did not come again is elsewhere by now.
        self._sent_away = {
            other: since for other, since in self._sent_away.items() if now - since < 2 * _LONGEST and other != op_id
        } | {op_id: now}
        delay = min(_LONGEST, max(_SHORTEST, len(self._sent_away) / _RETURNS_PER_SECOND))
        return delay * random.uniform(0.5, 1.5)  # noqa: S311 - spreads load


def transfer_places(count: int) -> Mapping[Operation, Places]:
    """Of each direction: a night's archives do not keep a person from restoring."""
    return {Operation.ARCHIVING: Places(count), Operation.RESTORING: Places(count)}
