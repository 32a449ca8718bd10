"""Several Docker engines on one machine, some of them of other processes' tests: what they do to each other.

Two that choose addresses for a network at the same moment choose the same, and what is sent to one's containers then
reaches the other's. One that starts makes the packet filter's chains anew that they share: for a moment there are none.
"""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from docker.errors import APIError

from adapters.docker.runtime import DockerRuntime
from adapters.docker.starting import NO_RULE
from starter.embedded.bridge import _routes

SETTLED_SECONDS = 2.0
"""Until a network can be seen by those who choose after it."""
MOMENT_SECONDS = 10.0

T = TypeVar("T")


async def ensure_network(runtime: DockerRuntime) -> None:
    """The installation's, on addresses that nobody else has; whoever comes later leaves them alone."""
    while True:
        await runtime.ensure_network()
        # Also whoever chose at the same moment, and took longer.
        await asyncio.sleep(SETTLED_SECONDS)
        if not _is_shared(runtime._network.bridge):
            return
        await runtime.remove_network()


def despite_others(call: Callable[[], T]) -> T:
    """What the engine is asked for past codehub, which does the same (see adapters.docker.starting)."""
    deadline = time.monotonic() + MOMENT_SECONDS
    while True:
        try:
            return call()
        except APIError as error:
            if NO_RULE not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def _is_shared(bridge: str) -> bool:
    routes = list(_routes())
    own = [route for interface, route in routes if interface == bridge]
    return any(one.overlaps(route) for one in own for interface, route in routes if interface != bridge)
