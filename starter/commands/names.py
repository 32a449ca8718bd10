"""Which workspace is meant: by its name, its id, or the beginning of its id; an admin's `--owner` says whose."""

from difflib import get_close_matches
from shlex import quote
from typing import Annotated, Any

import typer

from starter.commands.failure import CommandFailed, Exit
from starter.commands.screen import Workspace
from starter.commands.server import Server

LEAST = 6
"""Characters of an id that name a workspace: fewer are more likely a slip than a choice."""
_PAGE = 200
_COMPLETION_SECONDS = 1.5


def find(server: Server, given: str, owner: str | None = None) -> Workspace:
    """One's own, or for an admin that of `owner`: then it says whose it is, by the key `owner`."""
    everything = all_workspaces(server, owner=owner)["items"]
    found = match(everything, given)
    if len(found) == 1:
        return found[0]
    if found:
        raise CommandFailed(f"{given!r} is ambiguous: {', '.join(_spelled(ws) for ws in found)}.", Exit.USAGE)
    listed = (
        f"codehub ls --owner {quote(owner)} shows those of {owner}."
        if owner
        else "codehub ls shows those that you have."
    )
    hint = _too_short(everything, given) or _alike(given, [str(ws["name"]) for ws in everything]) or listed
    raise CommandFailed(f"There is no workspace {given!r}{f' of {owner}' if owner else ''}. {hint}", Exit.NOT_FOUND)


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
        or [ws for ws in workspaces if len(wanted) >= LEAST and ws["id"].startswith(wanted)]
    )


def path(ws: Workspace) -> str:
    """Where the API has it: one that an admin asked for by its owner is below the admins' own."""
    return f"/api/v1/{'admin/' if 'owner' in ws else ''}workspaces/{ws['id']}"


def called(ws: Workspace) -> str:
    """As a command takes it, when it is pasted into a shell."""
    name = quote(str(ws["name"]))
    owner = ["--owner", quote(str(ws["owner"]))] if "owner" in ws else []
    return " ".join([*owner, "--", name] if name.startswith("-") else [name, *owner])


def titled(ws: Workspace) -> str:
    """As a person says it, who must not take it for one of their own."""
    return f"{ws['owner']}'s {ws['name']}" if "owner" in ws else str(ws["name"])


def all_workspaces(server: Server, phase: str | None = None, owner: str | None = None) -> dict[str, Any]:
    """One's own, or for an admin those of `owner`."""
    if owner is None:
        return all_pages(server, "/api/v1/workspaces", phase=phase)
    return everybodys(server, phase, _user_id(server, owner))


def everybodys(server: Server, phase: str | None = None, owner_user_id: str | None = None) -> dict[str, Any]:
    """For an admin: all there are, or those of one user."""
    return _as_admin(server, "/api/v1/admin/workspaces", phase=phase, owner_user_id=owner_user_id)


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
            found = all_workspaces(reached, owner=ctx.params.get("owner"))["items"]
    except (CommandFailed, OSError, ValueError):
        return []
    return [(ws["name"], ws["phase"]) for ws in found if ws["name"].startswith(incomplete)]


def complete_owner(ctx: typer.Context, incomplete: str) -> list[str]:
    """As `complete`; to somebody who is no admin there is nothing to offer."""
    from starter.commands.options import server

    try:
        with server(ctx.params.get("url"), ctx.params.get("token"), _COMPLETION_SECONDS) as reached:
            found = all_pages(reached, "/api/v1/users")["items"]
    except (CommandFailed, OSError, ValueError):
        return []
    return [user["username"] for user in found if user["username"].startswith(incomplete)]


Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help=f"The workspace: its name, its id, or how its id begins ({LEAST} characters or more).",
        autocompletion=complete,
    ),
]


Owner = Annotated[
    str | None,
    typer.Option(
        "--owner",
        metavar="USER",
        help="For admins: NAME is a workspace of this user's.",
        autocompletion=complete_owner,
    ),
]


def _user_id(server: Server, username: str) -> str:
    users = {user["username"]: str(user["id"]) for user in _as_admin(server, "/api/v1/users")["items"]}
    if username not in users:
        raise CommandFailed(f"There is no user {username!r}. {_alike(username, list(users))}".strip(), Exit.NOT_FOUND)
    return users[username]


def _as_admin(server: Server, path: str, **query: str | None) -> dict[str, Any]:
    try:
        return all_pages(server, path, **query)
    except CommandFailed as error:
        if error.code != "admin_only":
            raise
        text = f"Other people's workspaces are for admins to see to, and your login at {server.url} is not an admin's."
        raise CommandFailed(text, error.exit_code, code=error.code) from error


def _too_short(workspaces: list[Workspace], given: str) -> str:
    begins = given and any(ws["id"].startswith(given.lower()) for ws in workspaces)
    return f"Of an id, give at least {LEAST} characters." if begins else ""


def _alike(given: str, known: list[str]) -> str:
    found = get_close_matches(given, known)
    return f"Did you mean {' or '.join(found)}?" if found else ""


def _spelled(ws: Workspace) -> str:
    return f"{ws['name']} ({ws['id']})"
