"""Ports for servers that can't be told to take any."""

import os
import random
import socket

LOWEST, HIGHEST = 5000, 9999
"""Neither a client's connection of its own (32768 and up on Linux) nor a service of the embedded stack (12000 and up)
can take one between its choice and its use."""
UNSAFE = {5060, 5061, 6000, 6566, *range(6665, 6670), 6679, 6697}
"""Browsers open no page there: other protocols have these ports."""
_given: set[int] = set()


def free_port() -> int:
    """No one twice in a process, and none that another process of the run may choose at the same moment."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    own = range(LOWEST + number, HIGHEST, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
    for _ in range(1000):
        port = random.SystemRandom().choice(own)
        if port in _given or port in UNSAFE:
            continue
        try:
            with socket.create_server(("127.0.0.1", port)):
                _given.add(port)
                return port
        except OSError:
            continue
    raise AssertionError(f"no free port between {LOWEST} and {HIGHEST}")
