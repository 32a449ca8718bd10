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

_ROUNDS = 7
_PAGE = 50


async def measure(population: Population, part: Part, *, last: bool) -> None:
    catalog = Catalog(population.database, DesiredStates(population.database, Limits(1, 1)))
    overview, owner = Overview(population.database), UserId(str(population.owner))
    asked = {
        f"page of {_PAGE} of one user's list": lambda: catalog.page(owner, limit=_PAGE, offset=0),
        f"page of {_PAGE} of the admin's list": lambda: overview.page(limit=_PAGE, offset=0),
        "the admin's counts": overview.counts,
    }
    for what, ask in asked.items():
        # What is read and planned for the first time is not what a request costs.
        await milliseconds(ask)
        taken = [await milliseconds(ask) for _ in range(_ROUNDS)]
        part.growth.add(what, population.count, statistics.median(taken))
        if last:
            part.add(Row(f"{what}, {population.count:,} rows", taken, unit="ms"))
