"""Host ports of workspaces, chosen here: the engine begins at its lowest one whenever it is restarted, and would hand
out one that a row, or somebody's open tab, still takes for another one's workspace."""

import random

from adapters.runtime import PortsTaken

FIRST, LAST = 32768, 60999
"""As the engine's own choice on Linux: firewalls are told of these."""
_COUNT = LAST - FIRST + 1
_MORE = 8
"""Where one is taken, those that follow often are, too: then it is asked for so many times as many at once."""


class Ports:
    """One after the other, so that one that was given back is not somebody else's soon."""

    def __init__(self) -> None:
        self._last = random.randrange(_COUNT)  # noqa: S311 - no secret

    async def next(self, taken: PortsTaken) -> int:
        """Whether it is free shows when it is used."""
        asked, at_once = 0, 1
        while True:
            ports = [self._following() for _ in range(at_once)]
            passed_by = set(await taken(ports))
            for port in ports:
                if port not in passed_by:
                    return port
            asked += at_once
            if asked >= _COUNT:
                return ports[-1]
            at_once = min(at_once * _MORE, _COUNT - asked)

    def _following(self) -> int:
        self._last = (self._last + 1) % _COUNT
        return FIRST + self._last
