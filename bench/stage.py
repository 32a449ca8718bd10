"""A stage that everybody goes through in turn."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """It lets one through after the other, each so many seconds after the one before; one who finds it empty takes
    `alone` seconds all the same."""

    apart: float
    alone: float = 0.0

    def served(self, arrivals: Iterable[float]) -> list[float]:
        """When each of them is done; they come in this order."""
        free, done = float("-inf"), []
        for arrived in arrivals:
            begun = max(arrived, free)
            free = begun + self.apart
            done.append(begun + max(self.apart, self.alone))
        return done
