"""How much of everything is measured: as a rule, or just enough to see that the benchmarks themselves work."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    rounds: int = 5
    """Of a life of one workspace, against its floors."""
    crowds: int = 3
    """Rounds of many created at once."""
    crowd: int = 20

    homes: tuple[tuple[int, int], ...] = ((200, 3), (2000, 1))
    """Archives of so many MB, in so many rounds."""
    small_files: tuple[int, int] = (50_000, 2)
    """And rounds."""
    memory_of: int = 5_000
    """MB of one more archive, for the worker's memory alone."""

    screens: tuple[int, ...] = (100, 300, 1_000)
    users: int = 10
    """Whose screens these are."""
    changes: int = 100
    """That one screen hears of, in a round."""

    rows: tuple[int, ...] = (100, 1_000, 10_000, 100_000)
    expiring: int = 100
    ticks: int = 7
    few: int = 60
    """Of a user among all those rows: more than a page."""
    listed: int = 2_000
    """Objects in the store, whose listing is timed."""

    fleet: int = 10_000
    first: int = 100
    """Made as people do, at every size; the others are copies of them."""
    smaller_fleets: tuple[int, ...] = (1_000,)
    """For the curves."""
    transitions: int = 60
    quiet_seconds: float = 5.0
    idle_seconds: float = 124.0
    """Two ticks of TTL and two counts of the census, and eight sweeps."""
    smaller_idle_seconds: float = 62.0
    looks: int = 300
    wakes: int = 60
    """In a round."""
    long_histories: int = 10
    at_once: int = 500
    few_at_once: int = 50
    kills: int = 1
    """Of the only worker, after each of which all of `at_once` are woken."""
    more_kills: int = 7
    long_since: int = 80
    """Events that each of their histories has before the first of `more_kills`: with a few transitions more they are
    cut (WorkspaceInput.history_limit)."""
    cached: int = 2_000
    """Workflows that a worker keeps: WORKER_MAX_CACHED_WORKFLOWS."""

    lost: int = 1_000
    """Homes on a node that is gone."""
    fewer_lost: int = 100

    load_rounds: int = 5
    load_seconds: int = 2
    """Of each proxy, in a round."""


PLAIN = Sizes()
TINY = Sizes(
    rounds=1,
    crowds=1,
    crowd=3,
    homes=((20, 1),),
    small_files=(500, 1),
    memory_of=40,
    screens=(5, 20),
    users=2,
    changes=10,
    rows=(200, 400),
    ticks=2,
    few=55,
    listed=30,
    fleet=160,
    first=40,
    smaller_fleets=(100,),
    transitions=6,
    quiet_seconds=1.0,
    idle_seconds=6.0,
    smaller_idle_seconds=4.0,
    looks=20,
    wakes=10,
    long_histories=2,
    at_once=40,
    few_at_once=10,
    more_kills=2,
    long_since=60,
    cached=40,
    lost=40,
    fewer_lost=20,
    load_rounds=1,
    load_seconds=1,
)
