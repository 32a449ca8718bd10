"""`codehub ls`, `codehub show`."""

import contextlib
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from domain.model import Phase
from starter.commands.examples import examples
from starter.commands.failure import CommandFailed, Exit
from starter.commands.moved import bytes_moved
from starter.commands.names import Name, Owner, all_pages, all_workspaces, complete_owner, everybodys, find, path
from starter.commands.options import AsJson, Token, Url, completing, one_of, reached
from starter.commands.screen import (
    Workspace,
    cell,
    facts,
    fitted,
    next_step,
    print_json,
    put,
    say,
    short,
    state,
    when,
)
from starter.commands.server import Server
from starter.commands.words import ago, moment, span

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

# The name is worth more than what follows it.
_CONDITION_COLUMNS = {"CONDITION": 0, "STATUS": 0, "SINCE": 60, "REASON": 50}
_COLUMNS = {"NAME": 0, "OWNER": 50, "STATE": 0, "NEXT": 60, "USED": 70, "ID": 80}


@examples(
    "codehub ls",
    "codehub ls --phase error",
    "codehub ls --json | jq -r '.items[] | select(.phase == \"RUNNING\") | .name'",
    "codehub ls --all --phase error",
)
def ls(
    phase: Annotated[
        Phase | None,
        typer.Option(
            "--phase",
            parser=one_of(Phase),
            autocompletion=completing(Phase),
            metavar="PHASE",
            help="Only those in this phase.",
        ),
    ] = None,
    everybody: Annotated[bool, typer.Option("--all", "-a", help="For admins: everybody's.")] = False,
    owner: Annotated[
        str | None,
        typer.Option("--owner", metavar="USER", help="For admins: this user's.", autocompletion=complete_owner),
    ] = None,
    url: Url = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """List your workspaces, newest first."""
    with reached(url, token, as_json=as_json) as server:
        if everybody and owner:
            raise CommandFailed("--all is everybody's, --owner one user's: give one of them.", Exit.USAGE)
        wanted = phase.value if phase else None
        page = everybodys(server, wanted) if everybody else all_workspaces(server, wanted, owner)
        if as_json:
            print_json(page)
            return
        if not page["items"]:
            say("There is none." if phase or everybody or owner else "You have no workspace yet: codehub create NAME")
            return
        steps = {} if everybody or owner else _next_steps(server)
        rows: list[dict[str, str | Text]] = [
            {
                "NAME": cell(ws["name"], "bold"),
                "OWNER": ws.get("owner", ""),
                "STATE": state(ws),
                "NEXT": _coming(ws, steps, server.now),
                "USED": ago(moment(ws["last_access_at"]), server.now),
                "ID": short(ws["id"]),
            }
            for ws in page["items"]
        ]
        put(fitted(_COLUMNS, rows, wide="NAME"))


@examples(
    "codehub show demo",
    "codehub show demo --json | jq -r .phase",
    "codehub show demo --owner alice",
)
def show(name: Name, owner: Owner = None, url: Url = None, token: Token = None, as_json: AsJson = False) -> None:
    """Show all there is to know about a workspace."""
    with reached(url, token, as_json=as_json) as server:
        ws = find(server, name, owner)
        if as_json:
            print_json(ws)
            return
        told = server.get(f"{path(ws)}/explain")
        put(facts(_facts(ws, told, server)))
        if ws["conditions"]:
            say("")
            put(_conditions(ws, server.now))


def _facts(ws: Workspace, told: dict[str, Any], server: Server) -> "list[tuple[str, str | Text]]":
    from rich.text import Text

    now = server.now
    pairs: list[tuple[str, str | Text]] = [
        ("name", Text(ws["name"], style="bold")),
        ("id", ws["id"]),
        ("state", state(ws)),
        ("wanted", ws["desired_state"]),
    ]
    if ws["operation"] != "NONE":
        pairs.append(("operation", f"{ws['operation']}, begun {when(ws['op_started_at'], now)}"))
        if moved := ws["progress"]:
            pairs.append(("so far", bytes_moved(moved)))
    if told["what_to_do"]:
        pairs += [("because", told["because"]), ("what to do", told["what_to_do"])]
    if ws["error_count"]:
        pairs.append(("failed attempts", str(ws["error_count"])))
    if told["next_step"]:
        pairs.append(("next", next_step(told["next_step"], now)))
    used = (told["last_activity"] or {}).get("at")
    pairs += [
        ("last used", when(used, now)),
        ("since", when(ws["phase_changed_at"], now)),
        ("created", when(ws["created_at"], now)),
        ("image", ws["image_ref"]),
        *_idle_times(ws, server),
    ]
    # Of another's, an admin sees the owner, and not what they wrote into it; the address is open to the owner only.
    optional = {
        "owner": ws.get("owner"),
        "description": ws.get("description"),
        "memo": ws.get("memo"),
        "archive": ws["archive_key"],
        "node": ws["node"],
        "address": f"{server.url}/w/{ws['id']}/" if "owner" not in ws else None,
    }
    return pairs + [(name, str(value)) for name, value in optional.items() if value]


def _conditions(ws: Workspace, now: datetime) -> "Table":
    rows: list[dict[str, str | Text]] = [
        {
            "CONDITION": name,
            "STATUS": condition["status"],
            "SINCE": ago(moment(condition["last_transition_time"]), now),
            "REASON": cell(": ".join(part for part in (condition["reason"], condition["message"]) if part)),
        }
        for name, condition in ws["conditions"].items()
    ]
    return fitted(_CONDITION_COLUMNS, rows, wide="REASON")


def _next_steps(server: Server) -> dict[str, dict[str, Any]]:
    """What happens by itself, and to which workspace."""
    try:
        told = all_pages(server, "/api/v1/explain")
    except CommandFailed:
        # The list itself is there: it is no reason to show nothing.
        return {}
    return {one["id"]: one["next_step"] for one in told["items"] if one["next_step"]}


def _coming(ws: Workspace, steps: dict[str, dict[str, Any]], now: datetime) -> str:
    started = moment(ws["op_started_at"])
    if started is not None:
        return f"{span(now - started)} so far"
    if ws["phase"] == "ERROR":
        return "recover or rm"
    return next_step(steps.get(ws["id"]), now)


def _idle_times(ws: Workspace, server: Server) -> list[tuple[str, str]]:
    names = {"sleeps after": "standby_ttl_seconds", "archived after": "archive_ttl_seconds"}
    defaults: dict[str, int] = {}
    if any(ws[name] is None for name in names.values()):
        # Without them there is all the rest to show.
        with contextlib.suppress(CommandFailed):
            defaults = server.get("/api/v1/installation")["ttl"]
    return [(label, _ttl(ws[name], defaults.get(name))) for label, name in names.items()]


def _ttl(seconds: int | None, default: int | None) -> str:
    from datetime import timedelta

    if seconds is None:
        return "the installation's default" if default is None else f"{_ttl(default, None)} (default)"
    return span(timedelta(seconds=seconds)) if seconds else "never"
