"""A directory of a container as a tar stream from the engine's archive API."""

from collections.abc import Iterator
from typing import Any, Self

from docker import APIClient

_CHUNK = 1024 * 1024


class EngineTar:
    """`adapters.homes.HomeStream`. The engine keeps mtimes to the second and says nothing of sockets."""

    total: int | None = None
    sockets = 0

    def __init__(self, api: APIClient, container: str, path: str) -> None:
        self._chunks, _ = api.get_archive(container, path, chunk_size=_CHUNK)

    def __iter__(self) -> Iterator[bytes]:
        yield from self._chunks

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        close: Any = getattr(self._chunks, "close", None)
        if close is not None:
            close()
