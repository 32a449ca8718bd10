"""argon2id, in threads of its own. Each hash takes 64 MiB, so only a few run at once and only so many wait."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

T = TypeVar("T")


class PasswordsBusy(Exception):
    """More wait already than can be served soon."""


class Passwords:
    def __init__(self, hasher: PasswordHasher | None = None, *, at_once: int = 2, waiting: int = 32) -> None:
        self._hasher = hasher or PasswordHasher()
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="argon2")
        self._most = at_once + waiting
        self._now = 0
        # Verified where there is no user, so that the answer takes the same time.
        self._nobody = self._hasher.hash("nobody's password")

    async def hash(self, password: str) -> str:
        return await self._run(lambda: self._hasher.hash(password))

    async def verify(self, stored: str | None, password: str) -> bool:
        """False for nobody's hash too, after the same work."""
        right = await self._run(lambda: self._is_right(stored or self._nobody, password))
        return right and stored is not None

    def is_outdated(self, stored: str) -> bool:
        return self._hasher.check_needs_rehash(stored)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _is_right(self, stored: str, password: str) -> bool:
        try:
            return self._hasher.verify(stored, password)
        except (VerificationError, InvalidHashError):
            return False

    async def _run(self, work: Callable[[], T]) -> T:
        if self._now >= self._most:
            raise PasswordsBusy
        self._now += 1
        future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        # The work goes on when its caller is gone: it counts until it is done.
        future.add_done_callback(self._done)
        return await future

    def _done(self, _: object) -> None:
        self._now -= 1
