"""`codehub explain`, `codehub log`: why a workspace is where it is, and how it came there."""

from typing import Annotated

import typer

from starter.commands.examples import examples
from starter.commands.names import Name, find
from starter.commands.options import AsJson, Token, Url, reached
from starter.commands.screen import (
    COLOURS,
    Workspace,
    amount,
    facts,
    next_step,
    print_json,
    put,
    say,
    state,
    table,
    when,
)
from starter.commands.server import Server
from starter.commands.words import ago, moment, took


@examples(
    "codehub explain demo",
)
def explain(name: Name, url: Url = None, token: Token = None, as_json: AsJson = False) -> None:
    """Say why a workspace is in its phase, what it waits for, what happens next, and what you can do."""
    with reached(url, token, as_json=as_json) as server:
        ws = find(server, name)
        told = server.get(f"/api/v1/workspaces/{ws['id']}/explain")
        if as_json:
            print_json(told)
            return
        now = server.now
        step = next_step(told["next_step"], now)
        used = told["last_activity"]
        kind = f", {used['kind']}" if used and used["kind"] else ""
        resting = None if told["waiting_for"] else "Nothing happens by itself."
        pairs = [
            (ws["name"], state({**ws, **{name: told[name] for name in ("phase", "operation", "desired_state")}})),
            ("because", told["because"]),
            ("message", last_message(server, ws) if told["phase"] == "ERROR" else None),
            ("waiting for", told["waiting_for"]),
            ("what to do", told["what_to_do"]),
            ("next", f"It {step}, unless it is used." if step else resting),
            ("last used", f"{when(used['at'], now)}{kind}" if used else "never"),
        ]
        put(facts([(label, value) for label, value in pairs if value]))


def last_message(server: Server, ws: Workspace) -> str | None:
    """What the last operation that failed had to say."""
    page = server.get(f"/api/v1/workspaces/{ws['id']}/operations", limit=10)
    return next((one["error_message"] for one in page["items"] if one["outcome"] == "FAILED"), None)


@examples(
    "codehub log demo",
    "codehub log demo -n 100 --json",
)
def log(
    name: Name,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=200, help="How many, latest first.")] = 20,
    url: Url = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Show the operations of a workspace, latest first: what, when, how long, how it ended."""
    from rich.text import Text

    with reached(url, token, as_json=as_json) as server:
        ws = find(server, name)
        page = server.get(f"/api/v1/workspaces/{ws['id']}/operations", limit=limit)
        if as_json:
            print_json(page)
            return
        if not page["items"]:
            say(f"{ws['name']} had no operation yet.")
            return
        made = table("STARTED", "OPERATION", "OUTCOME", "TOOK", "TRIES", "BYTES")
        for one in page["items"]:
            outcome = one["outcome"] or "under way"
            label = f"{outcome} {one['error_reason']}" if one["error_reason"] else outcome
            made.add_row(
                ago(moment(one["started_at"]), server.now),
                one["operation"],
                Text(label, style=COLOURS.get(outcome, "yellow")),
                took(one["duration_seconds"]),
                str(one["attempts"]),
                amount(one["bytes_done"], one["bytes_total"]),
            )
        put(made)
        if page["total"] > len(page["items"]):
            say(f"… and {page['total'] - len(page['items'])} older ones (--limit).")
        failed = next((one for one in page["items"] if one["error_message"]), None)
        if failed:
            say(f"\nLast message ({failed['operation']}): {failed['error_message']}")
