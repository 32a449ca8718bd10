"""`codehub events`."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from starter.commands.examples import examples
from starter.commands.failure import Exit
from starter.commands.interrupting import end_at_the_second
from starter.commands.moved import doing, percent
from starter.commands.names import complete, find
from starter.commands.options import AsJson, Token, Url, reached
from starter.commands.screen import Workspace, note, out, print_json_line, say, state
from starter.commands.server import Server
from starter.commands.stream import Event, Stream
from starter.commands.words import size, took

if TYPE_CHECKING:
    from rich.text import Text

_NAME_WIDTH = 20
_STREAM = {"connected", "interrupted", "heartbeat"}


@examples(
    "codehub events",
    "codehub events demo --json | jq .data.phase",
)
def events(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Only of this workspace.", autocompletion=complete),
    ] = None,
    url: Url = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Follow your workspaces live, until Ctrl-C. Comes back by itself when the connection breaks.

    With --json: one line `{"event": …, "data": …}` for each; the current state of each workspace comes first.
    """
    end_at_the_second()
    with reached(url, token, as_json=as_json) as server:
        only = find(server, name)["id"] if name else None
        try:
            _follow(server, only, as_json=as_json)
        except KeyboardInterrupt:
            raise typer.Exit(Exit.INTERRUPTED) from None


def _follow(server: Server, only: str | None, *, as_json: bool) -> None:
    known: dict[str, Workspace] = {}
    connected = True
    with Stream(server) as stream:
        while True:
            event = stream.next(None)
            if event is None:
                continue
            if event.name in _STREAM:
                connected = _tell_stream(event, connected=connected)
            elif only is None or event.body.get("id") == only:
                if as_json:
                    print_json_line({"event": event.name, "data": event.body})
                else:
                    _tell(event, known)


def _tell_stream(event: Event, *, connected: bool) -> bool:
    if event.name == "interrupted":
        if connected:
            note(f"{event.body['message']} Trying again …")
        return False
    if event.name == "connected" and not connected:
        note("Connected again.")
    return True


def _tell(event: Event, known: dict[str, Workspace]) -> None:
    body = event.body
    before = known.get(body["id"])
    match event.name:
        case "workspace_updated":
            known[body["id"]] = body
            if changes := _changes(before, body):
                say(_line(body["name"], changes), whole=True)
        case "workspace_deleted":
            known.pop(body["id"], None)
            if before:
                say(_line(before["name"], "deleted"), whole=True)
        case "workspace_progress" if before and before.get("moved") != _moved(body):
            before["moved"] = _moved(body)
            say(_line(before["name"], _moved(body)), whole=True)


def _changes(before: Workspace | None, after: Workspace) -> "str | Text":
    from rich.text import Text

    now = state(after)
    if before is None or state(before).plain != now.plain:
        return now
    told = [field for field in ("name", "description", "memo") if before[field] != after[field]]
    told += [f"attempt {after['error_count']} failed"] if after["error_count"] > before["error_count"] else []
    return Text(f"changed: {', '.join(told)}") if told else ""


def _moved(body: dict[str, Any]) -> str:
    done = percent(body) or f" {size(body['bytes_done'])}"
    parts = [f"{doing(body['operation'], body)}{done}"]
    parts += [f"{size(body['bytes_per_second'])}/s"] if body["bytes_per_second"] else []
    parts += [f"{took(body['eta_seconds'])} left"] if body["eta_seconds"] else []
    return ", ".join(parts)


def _line(name: str, what: "str | Text") -> "Text":
    from rich.text import Text

    shown = Text(name, style="bold")
    if out().is_terminal:
        shown.truncate(_NAME_WIDTH, overflow="ellipsis", pad=True)
    return Text.assemble((f"{datetime.now():%H:%M:%S}  ", "dim"), shown, "  ", what)  # noqa: DTZ005
