"""`codehub ls`, `codehub show`."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from domain.model import Phase
from starter.commands.examples import examples
from starter.commands.failure import CommandFailed, Exit
from starter.commands.names import Name, all_workspaces, find
from starter.commands.options import AsJson, Token, Url, reached
from starter.commands.screen import (
    Workspace,
    amount,
    cell,
    facts,
    next_step,
    out,
    percent,
    print_json,
    put,
    say,
    short,
    state,
    table,
    when,
)
from starter.commands.server import Server
from starter.commands.words import ago, moment, span

if TYPE_CHECKING:
    from rich.text import Text

# Each takes a question of its own to the server.
_MOST_EXPLAINED = 25
# How wide the terminal must be for each: the name is worth more than what follows it.
_COLUMNS = {"NAME": 0, "STATE": 0, "NEXT": 60, "USED": 70, "ID": 80}


@examples(
    "codehub ls",
    "codehub ls --phase error",
    "codehub ls --json | jq -r '.items[] | select(.phase == \"RUNNING\") | .name'",
)
def ls(
    phase: Annotated[
        Phase | None, typer.Option("--phase", case_sensitive=False, metavar="PHASE", help="Only those in this phase.")
    ] = None,
    url: Url = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """List your workspaces, newest first."""
    with reached(url, token, as_json=as_json) as server:
        page = all_workspaces(server, phase.value if phase else None)
        if as_json:
            print_json(page)
            return
        if not page["items"]:
            say("There is none." if phase else "You have no workspace yet: codehub create NAME")
            return
        steps = _next_steps(server, page["items"])
        shown = [column for column, least in _COLUMNS.items() if out().width >= least]
        made = table(*shown, wide="NAME")
        for ws in page["items"]:
            cells: dict[str, str | Text] = {
                "NAME": cell(ws["name"], "bold"),
                "STATE": state(ws),
                "NEXT": _coming(ws, steps, server.now),
                "USED": ago(moment(ws["last_access_at"]), server.now),
                "ID": short(ws["id"]),
            }
            made.add_row(*(cells[column] for column in shown))
        put(made)


@examples(
    "codehub show demo",
    "codehub show demo --json | jq -r .phase",
)
def show(name: Name, url: Url = None, token: Token = None, as_json: AsJson = False) -> None:
    """Show all there is to know about a workspace."""
    with reached(url, token, as_json=as_json) as server:
        ws = find(server, name)
        if as_json:
            print_json(ws)
            return
        told = server.get(f"/api/v1/workspaces/{ws['id']}/explain")
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
        moved = ws["progress"]
        done = f", {amount(moved['bytes_done'], moved['bytes_total'])}{percent(moved)}" if moved else ""
        pairs.append(("operation", f"{ws['operation']}, begun {when(ws['op_started_at'], now)}{done}"))
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
        ("sleeps after", _ttl(ws["standby_ttl_seconds"])),
        ("archived after", _ttl(ws["archive_ttl_seconds"])),
    ]
    optional = {"description": ws["description"], "memo": ws["memo"], "archive": ws["archive_key"], "node": ws["node"]}
    pairs += [(name, str(value)) for name, value in optional.items() if value]
    pairs.append(("address", f"{server.url}/w/{ws['id']}/"))
    return pairs


def _conditions(ws: Workspace, now: datetime) -> Any:

    made = table("CONDITION", "STATUS", "SINCE", "REASON", wide="REASON")
    for name, condition in ws["conditions"].items():
        since = ago(moment(condition["last_transition_time"]), now)
        reason = cell(": ".join(part for part in (condition["reason"], condition["message"]) if part))
        made.add_row(name, condition["status"], since, reason)
    return made


def _next_steps(server: Server, workspaces: list[Workspace]) -> dict[str, dict[str, Any]]:
    """What happens by itself, of those that are at rest."""
    found: dict[str, dict[str, Any]] = {}
    resting = [ws for ws in workspaces if ws["phase"] in {"RUNNING", "STANDBY"} and ws["operation"] == "NONE"]
    for ws in resting[:_MOST_EXPLAINED]:
        try:
            told = server.get(f"/api/v1/workspaces/{ws['id']}/explain")
        except CommandFailed as error:
            if error.exit_code is not Exit.NOT_FOUND:
                raise
            continue
        if told["next_step"]:
            found[ws["id"]] = told["next_step"]
    return found


def _coming(ws: Workspace, steps: dict[str, dict[str, Any]], now: datetime) -> str:
    started = moment(ws["op_started_at"])
    if started is not None:
        return f"{span(now - started)} so far"
    if ws["phase"] == "ERROR":
        return "recover or rm"
    return next_step(steps.get(ws["id"]), now)


def _ttl(seconds: int | None) -> str:
    from datetime import timedelta

    match seconds:
        case None:
            return "the installation's default"
        case 0:
            return "never"
    return span(timedelta(seconds=seconds))
