"""`codehub start`, `stop`, `archive`, `recover`: where a workspace should be."""

from starter.commands.arriving import check_timeout, tell
from starter.commands.examples import examples
from starter.commands.failure import CommandFailed
from starter.commands.names import Name, find
from starter.commands.options import AsJson, Timeout, Token, Url, Wait, reached
from starter.commands.screen import Workspace


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
    """Archive a workspace: its home goes to the object storage, its volume is freed. A running one is stopped first."""
    _want(name, "ARCHIVED", url, token, wait=wait, timeout=timeout, as_json=as_json)


@examples(
    "codehub explain demo",
    "codehub recover demo --wait",
)
def recover(
    name: Name,
    wait: Wait = False,
    timeout: Timeout = None,
    url: Url = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Take a workspace out of ERROR: it goes on from what is there. `codehub explain` says what to mend first."""
    with reached(url, token, as_json=as_json) as server:
        check_timeout(wait=wait, timeout=timeout)
        found = find(server, name)
        ws = server.post(f"/api/v1/workspaces/{found['id']}/recover")
        tell(server, ws, ws["desired_state"], wait=wait, timeout=timeout, as_json=as_json)


def _want(
    name: str, phase: str, url: str | None, token: str | None, *, wait: bool, timeout: float | None, as_json: bool
) -> None:
    with reached(url, token, as_json=as_json) as server:
        check_timeout(wait=wait, timeout=timeout)
        found = find(server, name)
        try:
            ws = server.patch(f"/api/v1/workspaces/{found['id']}", {"desired_state": phase})
        except CommandFailed as error:
            raise _with_context(error, found) from error
        tell(server, ws, phase, wait=wait, timeout=timeout, as_json=as_json)


def _with_context(error: CommandFailed, ws: Workspace) -> CommandFailed:
    """Which operation is running, and which error it is in."""
    match error.code:
        case "operation_running" if ws["operation"] != "NONE":
            text = f"{ws['name']} is busy with {ws['operation']}: try again when it has ended."
        case "in_error" if ws["error_reason"]:
            text = (
                f"{ws['name']} is in ERROR, {ws['error_reason']}. `codehub explain {ws['name']}` says what to mend; "
                f"then `codehub recover {ws['name']}`."
            )
        case _:
            return error
    return CommandFailed(text, error.exit_code, code=error.code)
