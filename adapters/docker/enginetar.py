"""A directory of a container as a tar stream from the engine's archive API."""

from collections.abc import Iterator
from typing import Self

from docker import APIClient
from docker.types import CancellableStream

from adapters.docker.failures import FAILURES, translate
from domain.errors import Unrestorable

_CHUNK = 1024 * 1024


class EngineTar:
    """`adapters.homes.HomeStream`. The engine keeps mtimes to the second and says nothing of sockets.

    Nor of a file that changes while it is read: only one that has become shorter ends the stream too early. What was
    appended is not in it, and what was gone when its turn came is left out (docs/reliability.md).
    """

    total: int | None = None
    sockets: int | None = None

    def __init__(self, api: APIClient, container: str, path: str, where: str, most: int | None = None) -> None:
        """`most`: bytes that could be restored."""
        # Not by `get_archive`, which keeps the response to itself: it has to be closed while a thread reads from it.
        url = api._url("/containers/{0}/archive", container)  # type: ignore[attr-defined] # noqa: SLF001
        self._response = api._get(url, params={"path": path}, stream=True)  # type: ignore[attr-defined] # noqa: SLF001
        api._raise_for_status(self._response)  # type: ignore[attr-defined] # noqa: SLF001
        self._where = where
        self._most = most

    def __iter__(self) -> Iterator[bytes]:
        read = 0
        try:
            for chunk in self._response.iter_content(_CHUNK):
                read += len(chunk)
                if self._most is not None and read > self._most:
                    raise Unrestorable(
                        f"it holds more than the {self._most} bytes of its disk: files with holes, which the engine"
                        " fills with zeros; make them smaller, or let a worker on the engine's host archive it"
                    )
                yield chunk
        except FAILURES as error:
            raise translate(error, self._where) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # It shuts the socket down, which wakes whoever waits for its bytes. What refers to it would keep it open.
        CancellableStream(iter(()), self._response).close()
        self._response.close()
