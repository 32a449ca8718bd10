"""Which workspace is meant: by its name, its id, or the beginning of its id."""

from difflib import get_close_matches
from typing import Annotated, Any

import typer

from starter.commands.failure import CommandFailed, Exit
from starter.commands.screen import Workspace
from starter.commands.server import Server

_PAGE = 200
_COMPLETION_SECONDS = 1.5


def find(server: Server, given: str) -> Workspace:
    everything = all_workspaces(server)["items"]
    found = match(everything, given)
    if len(found) == 1:
        return found[0]
    if found:
        raise CommandFailed(f"{given!r} is ambiguous: {', '.join(_spelled(ws) for ws in found)}.", Exit.USAGE)
    alike = get_close_matches(given, [str(ws["name"]) for ws in everything])
    hint = f" Did you mean {' or '.join(alike)}?" if alike else " codehub ls shows those that you have."
    raise CommandFailed(f"There is no workspace {given!r}.{hint}", Exit.NOT_FOUND)


def match(workspaces: list[Workspace], given: str) -> list[Workspace]:
    """A name beats an id, and a whole id beats the beginning of another. One that is being deleted gives way to a
    new one that has its name.
    """
    named = [ws for ws in workspaces if ws["name"] == given]
    wanted = given.lower()
    return (
        [ws for ws in named if ws["desired_state"] != "DELETED"]
        or named
        or [ws for ws in workspaces if ws["id"] == wanted]
        or [ws for ws in workspaces if wanted and ws["id"].startswith(wanted)]
    )


def all_workspaces(server: Server, phase: str | None = None) -> dict[str, Any]:
    return all_pages(server, "/api/v1/workspaces", phase=phase)


def all_pages(server: Server, path: str, **query: str | None) -> dict[str, Any]:
    """All pages of a list as one."""
    items: dict[str, Workspace] = {}
    offset, total = 0, 1
    while offset < total:
        page = server.get(path, limit=_PAGE, offset=offset, **query)
        # One that was made meanwhile moves the others on: no one is shown twice.
        items.update({ws["id"]: ws for ws in page["items"]})
        offset, total = offset + _PAGE, page["total"]
    return {"items": list(items.values()), "total": total}


def complete(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """For the shell: whatever is wrong, there is nothing to offer, and nothing to say in the middle of a line."""
    from starter.commands.options import server

    try:
        with server(ctx.params.get("url"), ctx.params.get("token"), _COMPLETION_SECONDS) as reached:
            page = reached.get("/api/v1/workspaces", limit=_PAGE)
    except (CommandFailed, OSError, ValueError):
        return []
    return [(ws["name"], ws["phase"]) for ws in page["items"] if ws["name"].startswith(incomplete)]


Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="The workspace: its name, its id, or how its id begins.", autocompletion=complete
    ),
]


def _spelled(ws: Workspace) -> str:
    return f"{ws['name']} ({ws['id']})"
