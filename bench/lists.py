"""What people look at: a page of their own workspaces, an admin's page of everybody's, and the counts above it."""

import statistics

from adapters.postgres.catalog import Catalog
from adapters.postgres.desired_state import DesiredStates
from adapters.postgres.overview import Overview
from bench.part import Part
from bench.population import Population, milliseconds
from bench.row import Row
from domain.limits import Limits
from domain.model import UserId

_ROUNDS = 21
_PAGE = 50


async def measure(population: Population, part: Part, *, last: bool) -> None:
    """A user's own page is paid by each of them, as often as there are users: it may not grow with what others have.
    Whoever has, or may see, all of them is told how many these are: that is one count of all, by the one who asks."""
    catalog = Catalog(population.database, DesiredStates(population.database, Limits(1, 1)))
    overview, many, few = Overview(population.database), UserId(str(population.owner)), UserId(str(population.few))
    asked = {
        "page of a user's own list": (lambda: catalog.page(few, limit=_PAGE, offset=0), True),
        "page of the list of a user who has all": (lambda: catalog.page(many, limit=_PAGE, offset=0), False),
        "page of the admin's list": (lambda: overview.page(limit=_PAGE, offset=0), False),
        "the admin's counts": (overview.counts, False),
    }
    for what, (ask, each) in asked.items():
        # What is read and planned for the first time is not what a request costs.
        for _ in range(_ROUNDS // 3):
            await milliseconds(ask)
        taken = [await milliseconds(ask) for _ in range(_ROUNDS)]
        part.growth.add(what, population.count, statistics.median(taken), each=each)
        if last:
            note = f"{_PAGE} of {population.fews:,}" if each else ""
            part.add(Row(f"{what}, {population.count:,} rows", taken, unit="ms", note=note))
