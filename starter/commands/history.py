"""`codehub explain`, `codehub log`: why a workspace is where it is, and how it came there."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from starter.commands.examples import examples
from starter.commands.names import Name, Owner, find, path, titled
from starter.commands.options import AsJson, Token, Url, reached
from starter.commands.screen import (
    COLOURS,
    Workspace,
    amount,
    cell,
    facts,
    next_step,
    print_json,
    put,
    put_log,
    say,
    state,
    when,
)
from starter.commands.server import Server
from starter.commands.words import ago, moment, took

if TYPE_CHECKING:
    from rich.text import Text

_COLUMNS = {"STARTED": 50, "OPERATION": 0, "OUTCOME": 0, "TOOK": 62, "TRIES": 70, "FILES": 76, "BECAUSE": 60}


@examples(
    "codehub explain demo",
    "codehub explain demo --owner alice",
)
def explain(name: Name, owner: Owner = None, url: Url = None, token: Token = None, as_json: AsJson = False) -> None:
    """Say why a workspace is where it is, and what comes next.

    Why it is in its phase, what it waits for, what happens by itself and when, and what you can do.
    """
    with reached(url, token, as_json=as_json) as server:
        ws = find(server, name, owner)
        told = server.get(f"{path(ws)}/explain")
        if as_json:
            print_json(told)
            return
        now = server.now
        step = next_step(told["next_step"], now)
        used = told["last_activity"]
        kind = f", {used['kind']}" if used and used["kind"] else ""
        resting = None if told["waiting_for"] else "Nothing happens by itself."
        pairs = [
            (titled(ws), state({**ws, **{name: told[name] for name in ("phase", "operation", "desired_state")}})),
            ("because", told["because"]),
            ("message", last_message(server, ws) if told["phase"] == "ERROR" else None),
            ("waiting for", told["waiting_for"]),
            ("what to do", told["what_to_do"]),
            ("next", _unless(step, told) if step else resting),
            ("last used", f"{when(used['at'], now)}{kind}" if used else "never"),
            ("last change", _told(told.get("last_change"), now)),
        ]
        put(facts([(label, value) for label, value in pairs if value]))


def _unless(step: str, told: dict[str, Any]) -> str:
    return f"It {step}, unless it is {'done by then' if told['next_step']['error_reason'] else 'used'}."


def _row(one: dict[str, Any], now: datetime) -> "dict[str, str | Text]":
    outcome = one["outcome"] or "under way"
    label = f"{outcome} {one['error_reason']}" if one["error_reason"] else outcome
    return {
        "STARTED": ago(moment(one["started_at"]), now),
        "OPERATION": one["operation"],
        "OUTCOME": cell(label, COLOURS.get(outcome, "yellow")),
        "TOOK": took(one["duration_seconds"]),
        "TRIES": str(one["attempts"]) if one["attempts"] > 1 else "",
        "FILES": amount(one["bytes_done"], one["bytes_total"]),
        "BECAUSE": cell((one.get("cause") or {}).get("words", "")),
    }


def _told(change: dict[str, Any] | None, now: datetime) -> str | None:
    return f"{change['words']}, {ago(moment(change['at']), now)}" if change else None


def last_message(server: Server, ws: Workspace) -> str | None:
    """What the last operation that failed had to say."""
    page = server.get(f"{path(ws)}/operations", limit=10)
    return next((one["error_message"] for one in page["items"] if one["outcome"] == "FAILED"), None)


@examples(
    "codehub log demo",
    "codehub log demo -n 100 --json",
    "codehub log demo --owner alice",
)
def log(
    name: Name,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=200, help="How many, latest first.")] = 20,
    owner: Owner = None,
    url: Url = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Show the operations of a workspace, latest first.

    What it was and what made it begin, when, how long it took, in how many attempts, and how it ended; and how much
    was in the home that was archived or restored (`codehub verify` tells how large the archive is).
    """
    with reached(url, token, as_json=as_json) as server:
        ws = find(server, name, owner)
        page = server.get(f"{path(ws)}/operations", limit=limit)
        if as_json:
            print_json(page)
            return
        if not page["items"]:
            say(f"{titled(ws)} had no operation yet.")
            return
        put_log(_COLUMNS, [_row(one, server.now) for one in page["items"]], last="BECAUSE", wide="OUTCOME")
        if page["total"] > len(page["items"]):
            say(f"… and {page['total'] - len(page['items'])} older ones (--limit).")
        failed = next((one for one in page["items"] if one["error_message"]), None)
        if failed:
            say(f"\nLast message ({failed['operation']}): {failed['error_message']}")
