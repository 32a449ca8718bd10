"""What `scale` and `nodes` measure, at smaller sizes: without them the curves would have one point."""

from bench import nodes, scale
from bench.installation import Simulation
from bench.part import Part
from bench.sizes import Sizes


async def run(simulation: Simulation, part: Part, sizes: Sizes) -> None:
    await scale.smaller(simulation, part, sizes)
    await nodes.smaller(simulation, part, sizes)
