"""Ports for servers that can't be told to take any."""

import random
import socket

LOWEST, HIGHEST = 5000, 9999
"""Neither a client's connection of its own (32768 and up on Linux) nor a service of the embedded stack (12000 and up)
can take one between its choice and its use."""
_given: set[int] = set()


def free_port() -> int:
    """No one twice in a process; of two processes, each begins somewhere else."""
    for _ in range(1000):
        port = random.SystemRandom().randrange(LOWEST, HIGHEST)
        if port in _given:
            continue
        try:
            with socket.create_server(("127.0.0.1", port)):
                _given.add(port)
                return port
        except OSError:
            continue
    raise AssertionError(f"no free port between {LOWEST} and {HIGHEST}")
