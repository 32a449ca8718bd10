"""Which node a new home goes to. Pure: the caller reads the nodes and saves the choice in one transaction."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf

NO_PLACE = "NoPlace"
"""Why `storage.volume_ready` is False where no node has room."""
NOMINAL_HOME = 2 * 1024**3
"""Bytes of memory that stand for a place, on a node that has no limit of its own."""


@dataclass(frozen=True, slots=True)
class Place:
    """A node, and what is on it or on its way to it."""

    name: str
    homes: int = 0
    running: int = 0
    """Of these homes, those that are or should be RUNNING."""
    capacity: int | None = None
    """Homes at most; None: no limit."""
    memory: int = 0
    """Bytes."""
    cordoned: bool = False
    lost: bool = False

    @property
    def size(self) -> float:
        return self.capacity if self.capacity is not None else max(1.0, self.memory / NOMINAL_HOME)

    @property
    def full(self) -> bool:
        return self.room == 0

    @property
    def room(self) -> float:
        """Homes that it can still take."""
        return inf if self.capacity is None else max(0, self.capacity - self.homes)

    @property
    def open(self) -> bool:
        return not (self.cordoned or self.lost)

    def refusal(self) -> str | None:
        """Why nothing can be placed on it."""
        if self.lost:
            return f"{self.name} has not been heard of"
        if self.cordoned:
            return f"{self.name} is cordoned"
        if self.full:
            return f"{self.name} is full ({self.homes} of {self.capacity})"
        return None


def choose(places: Iterable[Place], *, kept: str | None = None, leaving: str | None = None) -> str | None:
    """The node with the largest free share, or None. At `kept` a place is kept already, `leaving` is no choice."""
    usable = [place for place in places if place.open and place.name != leaving]
    if kept is not None and any(place.name == kept for place in usable):
        return kept
    free = [place for place in usable if not place.full]
    return min(free, key=_load).name if free else None


def spread(places: Sequence[Place], running: Sequence[bool], leaving: str) -> tuple[list[str], list[Place]]:
    """Where homes that leave a node go, one after the other, as long as there is room; and the nodes with them."""
    left = list(places)
    chosen: list[str] = []
    for runs in running:
        name = choose(left, leaving=leaving)
        if name is None:
            break
        chosen.append(name)
        left = [_with(place, runs) if place.name == name else place for place in left]
    return chosen, left


def why_nowhere(places: Iterable[Place], leaving: str | None = None) -> str:
    reasons = [reason for place in places if place.name != leaving and (reason := place.refusal())]
    others = "no other node" if leaving else "no node"
    return f"{others} has a free place: {', '.join(sorted(reasons))}" if reasons else f"there is {others}"


def _load(place: Place) -> tuple[float, float, str]:
    """Memory is what runs out first, and only what runs uses it."""
    return (place.running / place.size, place.homes / place.size, place.name)


def _with(place: Place, runs: bool) -> Place:
    return replace(place, homes=place.homes + 1, running=place.running + int(runs))
