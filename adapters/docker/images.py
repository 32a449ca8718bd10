"""Images: pulled when they are missing, once for all who wait for the same one."""

import asyncio
import re
import threading
from contextlib import closing
from weakref import WeakValueDictionary

import structlog
from docker import APIClient
from docker.errors import APIError

from adapters.docker.engine import Engine
from adapters.docker.failures import NotThere, explanation
from domain.errors import ActionFailed, ImagePullFailed, Unreachable, WorkspaceError

log = structlog.get_logger()

# The engine passes the registry's trouble on as text, mostly with status 500.
NETWORK_TROUBLE = re.compile(
    r"dial tcp|dial udp|lookup |timeout|deadline exceeded|connection re|TLS handshake|x509|\bEOF\b"
    r"|HTTP status: 5\d\d|toomanyrequests|HTTP response to HTTPS client",
    re.IGNORECASE,
)
NOT_TO_BE_HAD = re.compile(
    r"not found|unknown|denied|unauthorized|no basic auth|does not exist|invalid reference|must be lowercase"
    r"|no matching manifest|does not match the specified platform|unsupported",
    re.IGNORECASE,
)
NOT_FOUND = 404
DISK_FULL = re.compile(r"no space left|disk quota", re.IGNORECASE)


class Images:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._pulls: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def fetch(self, image_ref: str) -> None:
        """Return once the engine has it."""
        lock = self._pulls.setdefault(image_ref, asyncio.Lock())
        async with lock:
            if not await self._present(image_ref):
                await self._pull(image_ref)

    async def _present(self, image_ref: str) -> bool:
        try:
            await self._engine.look(lambda api: api.inspect_image(image_ref))  # type: ignore[no-untyped-call]
        except NotThere:
            return False
        return True

    async def _pull(self, image_ref: str) -> None:
        given_up = threading.Event()

        def pull(api: APIClient) -> None:
            try:
                with closing(api.pull(image_ref, stream=True, decode=True)) as lines:
                    for line in lines:
                        if given_up.is_set():
                            return
                        if "error" in line:
                            raise pull_error(image_ref, None, str(line["error"]))
            except APIError as error:
                raise pull_error(image_ref, error.status_code, explanation(error)) from error

        log.info("image_pull_started", image=image_ref)
        try:
            await self._engine.follow(pull)
        finally:
            given_up.set()
        log.info("image_pull_finished", image=image_ref)


def pull_error(image_ref: str, status: int | None, text: str) -> WorkspaceError:
    """Whether it can't be had (a person has to act), or not now (worth another try)."""
    words = _without_names(image_ref, text)
    if DISK_FULL.search(words):
        return ActionFailed(f"Image {image_ref} has no room on the engine's disk: {text}")
    if status != NOT_FOUND and NETWORK_TROUBLE.search(words):
        return Unreachable(f"The registry of image {image_ref} did not answer: {text}")
    if NOT_TO_BE_HAD.search(words) or (status is not None and 400 <= status < 500):
        return ImagePullFailed(f"Image {image_ref} can't be pulled: {text}")
    return Unreachable(f"Image {image_ref} could not be pulled: {text}")


def _without_names(image_ref: str, text: str) -> str:
    """What the engine says, without the names that a person chose: an image may be called `timeout`."""
    repository, _, digest = image_ref.partition("@")
    repository, colon, tag = repository.rpartition(":")
    if not colon or "/" in tag:
        repository, tag = f"{repository}{colon}{tag}", ""
    host, _, path = repository.partition("/")
    # As Docker tells them apart: the first part is a registry's host only when it looks like one.
    if not path or not (set(host) & {".", ":"} or host == "localhost"):
        host, path = "", repository
    for name in (image_ref, repository, path, host, digest, tag):
        if name:
            text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", "…", text)
    return text
