"""`codehub start`, `stop`, `archive`: where a workspace should be."""

from starter.commands.arriving import check_timeout, tell
from starter.commands.examples import examples
from starter.commands.failure import CommandFailed, Exit
from starter.commands.names import Name, find
from starter.commands.options import AsJson, Timeout, Token, Url, Wait, reached
from starter.commands.refusals import with_context


@examples(
    "codehub start demo --wait",
    "codehub start demo --wait --timeout 5m && codehub open demo",
)
def start(
    name: Name,
    wait: Wait = False,
    timeout: Timeout = None,
    url: Url = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Start a workspace: RUNNING, from wherever it is. An archived one is restored first."""
    _want(name, "RUNNING", url, token, wait=wait, timeout=timeout, as_json=as_json)


@examples(
    "codehub stop demo --wait",
)
def stop(
    name: Name,
    wait: Wait = False,
    timeout: Timeout = None,
    url: Url = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Put a workspace to sleep: STANDBY. Its home stays on its volume."""
    _want(name, "STANDBY", url, token, wait=wait, timeout=timeout, as_json=as_json)


@examples(
    "codehub archive demo --wait",
)
def archive(
    name: Name,
    wait: Wait = False,
    timeout: Timeout = None,
    url: Url = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Archive a workspace: ARCHIVED, and its volume is freed.

    Its home goes to the object storage, from which a start restores it. A running one is stopped first.
    """
    _want(name, "ARCHIVED", url, token, wait=wait, timeout=timeout, as_json=as_json)


def _want(
    name: str, phase: str, url: str | None, token: str | None, *, wait: bool, timeout: float | None, as_json: bool
) -> None:
    with reached(url, token, as_json=as_json) as server:
        check_timeout(wait=wait, timeout=timeout)
        found = find(server, name)
        try:
            ws = server.patch(f"/api/v1/workspaces/{found['id']}", {"desired_state": phase})
        except CommandFailed as error:
            raise with_context(server, error, found) from error
        if ws["phase"] == "ERROR" and ws["error_reason"]:
            # It was wanted there already, which the server takes for no change: nothing will happen.
            raise with_context(server, CommandFailed("It is in ERROR.", Exit.CONFLICT, code="in_error"), ws)
        tell(server, ws, phase, wait=wait, timeout=timeout, as_json=as_json)
