"""What the server refuses, told with what this person can do about it."""

from starter.commands.failure import CommandFailed, Exit
from starter.commands.names import all_workspaces, called
from starter.commands.screen import Workspace
from starter.commands.server import Server


def with_context(server: Server, error: CommandFailed, ws: Workspace | None = None) -> CommandFailed:
    """Which operation is running, which error it is in, what takes the places. `ws` is as it was before."""
    text = _told(server, error, ws)
    return CommandFailed(text, error.exit_code, code=error.code) if text else error


def _told(server: Server, error: CommandFailed, ws: Workspace | None) -> str | None:
    match error.code:
        case "operation_running" if ws and ws["operation"] != "NONE":
            return f"{ws['name']} is busy with {ws['operation']}: try again when it has ended."
        case "in_error" if ws and ws["error_reason"]:
            return (
                f"{ws['name']} is in ERROR, {ws['error_reason']}. `codehub explain {called(ws)}` says what to mend; "
                f"then `codehub recover {called(ws)}`."
            )
        case "limit_per_user":
            return f"{error.message}{_places(server, ws)}"
    return None


def _places(server: Server, ws: Workspace | None) -> str:
    owner = ws.get("owner") if ws else None
    try:
        everything = all_workspaces(server, owner=owner)["items"]
    except CommandFailed as error:
        if error.exit_code is Exit.NOT_LOGGED_IN:
            raise
        return ""
    taken = [ws for ws in everything if ws["desired_state"] == "RUNNING" and ws["phase"] != "ERROR"]
    if not taken:
        return ""
    names = ", ".join(str(ws["name"]) for ws in taken)
    if owner:
        return f" {owner}'s are {names}: only {owner} can stop one."
    return f" Yours are {names}: codehub stop {called(taken[0])}"
