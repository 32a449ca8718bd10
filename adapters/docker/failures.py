"""What the engine's failures mean, in one place.

ActionFailed        the engine answered that it can't
├── NotThere        there is no such thing
│   └── NoImage     … namely no such image
└── Conflict        another one holds the name, or is at work on it
Unreachable         the engine did not answer
"""

from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from requests.exceptions import RequestException, Timeout
from urllib3.exceptions import HTTPError

from domain.errors import ActionFailed, Unreachable, WorkspaceError

FAILURES = (RequestException, DockerException, HTTPError, OSError)
"""Everything that docker-py lets through."""
GATEWAY_STATUSES = frozenset({502, 503, 504})


class NotThere(ActionFailed):
    pass


class NoImage(NotThere):
    pass


class Conflict(ActionFailed):
    pass


def translate(error: BaseException, where: str) -> WorkspaceError:
    """The error of ours that says what happened at the engine `where`."""
    if isinstance(error, APIError) and error.status_code is not None:
        return _answered(error, where)
    root = _root(error)
    if isinstance(error, Timeout) or isinstance(root, TimeoutError):
        return Unreachable(f"Docker at {where} did not answer in time")
    if isinstance(root, PermissionError):
        return Unreachable(f"Docker at {where} can't be used by this user: permission denied")
    if isinstance(root, FileNotFoundError | ConnectionRefusedError):
        return Unreachable(f"Docker did not answer at {where}: is it running?")
    if isinstance(error, DockerException) and not isinstance(root, RequestException | HTTPError | OSError):
        return ActionFailed(f"Docker client: {error}")
    return Unreachable(f"The connection to Docker at {where} broke: {root}")


def _answered(error: APIError, where: str) -> WorkspaceError:
    text = explanation(error)
    if error.status_code in GATEWAY_STATUSES:
        return Unreachable(f"Docker at {where} is not available: {text}")
    if isinstance(error, ImageNotFound):
        return NoImage(f"Docker: {text}")
    if isinstance(error, NotFound):
        return NotThere(f"Docker: {text}")
    if error.status_code == 409:
        return Conflict(f"Docker: {text}")
    return ActionFailed(f"Docker: {text}")


def explanation(error: APIError) -> str:
    return str(error.explanation or error)


def _root(error: BaseException) -> BaseException:
    """What lies under the layers of requests and urllib3, which wrap as argument, reason or cause."""
    for _ in range(10):
        inner = getattr(error, "reason", None)
        if not isinstance(inner, BaseException):
            inner = next((arg for arg in error.args if isinstance(arg, BaseException)), None)
        inner = inner or error.__cause__ or error.__context__
        if inner is None:
            break
        error = inner
    return error
