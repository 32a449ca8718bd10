"""Host ports of workspaces, chosen here: the engine begins at its lowest one whenever it is restarted, and would hand
out one that a row, or somebody's open tab, still takes for another one's workspace."""

import random
from collections.abc import Collection

FIRST, LAST = 32768, 60999
"""As the engine's own choice on Linux: firewalls are told of these."""
_COUNT = LAST - FIRST + 1


class Ports:
    """One after the other, so that one that was given back is not somebody else's soon."""

    def __init__(self) -> None:
        self._last = random.randrange(_COUNT)  # noqa: S311 - no secret

    def next(self, taken: Collection[int]) -> int:
        """Whether it is free shows when it is used."""
        for _ in range(_COUNT):
            self._last = (self._last + 1) % _COUNT
            if FIRST + self._last not in taken:
                break
        return FIRST + self._last
